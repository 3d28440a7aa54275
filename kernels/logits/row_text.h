// RowText: the tokens before a row's next one: a prompt, which all rows of a
// request share, and the row's own tail.
#pragma once

#include <cstddef>
#include <span>

#include "base/ids.h"

namespace espalier {

struct RowText {
  std::span<const TokenId> prompt = {};
  std::span<const TokenId> tail = {};

  size_t size() const { return prompt.size() + tail.size(); }
  TokenId operator[](size_t i) const {
    return i < prompt.size() ? prompt[i] : tail[i - prompt.size()];
  }
};

}  // namespace espalier
