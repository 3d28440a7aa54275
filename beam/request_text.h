// RequestText: how the texts of one request are made of tokens: by which
// tokenizer, and cut at which stops.
//
// Constant after construction. Streams refer to it, so it stays at its place.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "exec_request/generation_params.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace espalier {

class RequestText {
 public:
  // `params` as CheckStops (beam/finish_rule.h) has found them with this
  // tokenizer, which outlives this; null: there are no texts.
  RequestText(const GenerationParams& params, const Tokenizer* tokenizer);
  RequestText(const RequestText&) = delete;
  RequestText& operator=(const RequestText&) = delete;

  bool has_tokenizer() const { return tokenizer_ != nullptr; }

  // The text of a sequence, before its first token; nullopt without a
  // tokenizer.
  std::optional<TextStream> Begin() const;

  // The text of a hypothesis. REQUIRES: a tokenizer.
  std::string Of(std::span<const TokenId> tokens) const;

 private:
  const Tokenizer* const tokenizer_;
  const StopStrings stops_;
  const TextOptions options_;
};

}  // namespace espalier
