// DraftText: the tokens of a sequence that a draft model drafts for, or a
// prefix of them: the request's prompt, which all its sequences share, and the
// tokens generated after it. A copy costs O(generated tokens), however long the
// prompt is.
//
// Thread safety: a plain value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace espalier {

class DraftText {
 public:
  using Prompt = std::shared_ptr<const std::vector<TokenId>>;

  // Empty.
  DraftText() = default;
  // All of `prompt`, which is not null, and `generated`.
  DraftText(Prompt prompt, std::vector<TokenId> generated)
      : prompt_(std::move(prompt)),
        num_prompt_(prompt_->size()),
        generated_(std::move(generated)) {}

  size_t size() const { return num_prompt_ + generated_.size(); }
  // Tokens after the prompt.
  std::span<const TokenId> generated() const { return generated_; }

  // REQUIRES: it has the complete prompt.
  void Append(TokenId token) { generated_.push_back(token); }
  // Returns the first `size` tokens. REQUIRES: size <= size().
  DraftText First(size_t size) const;
  void Truncate(size_t size);
  // Grows to the first `size` tokens of `text`; copies only the new tokens.
  // REQUIRES: this is a prefix of `text`, size() <= size <= text.size().
  void GrowTo(size_t size, const DraftText& text);

  // Appends tokens [first, end) to `*tokens`.
  // REQUIRES: first <= end <= size().
  void CopyTo(size_t first, size_t end, std::vector<TokenId>* tokens) const;

  // Returns the length of the common prefix of two texts of one request.
  friend size_t CommonLength(const DraftText& a, const DraftText& b);

 private:
  Prompt prompt_ = nullptr;
  size_t num_prompt_ = 0;  // tokens of prompt_; all if generated_ has any
  std::vector<TokenId> generated_;
};

inline DraftText DraftText::First(size_t size) const {
  DraftText first;
  first.GrowTo(size, *this);
  return first;
}

inline void DraftText::Truncate(size_t size) {
  generated_.resize(size > num_prompt_ ? size - num_prompt_ : 0);
  num_prompt_ = std::min(num_prompt_, size);
}

inline void DraftText::GrowTo(size_t size, const DraftText& text) {
  prompt_ = text.prompt_;
  num_prompt_ = std::min(size, text.num_prompt_);
  const auto generated = text.generated_.begin();
  generated_.insert(generated_.end(), generated + generated_.size(),
                    generated + (size - num_prompt_));
}

inline void DraftText::CopyTo(size_t first, size_t end,
                              std::vector<TokenId>* tokens) const {
  const size_t middle = std::clamp(num_prompt_, first, end);
  if (first < middle) {
    tokens->insert(tokens->end(), prompt_->begin() + first,
                   prompt_->begin() + middle);
  }
  if (middle < end) {
    tokens->insert(tokens->end(), generated_.begin() + (middle - num_prompt_),
                   generated_.begin() + (end - num_prompt_));
  }
}

inline size_t CommonLength(const DraftText& a, const DraftText& b) {
  const size_t num_prompt = std::min(a.num_prompt_, b.num_prompt_);
  if (num_prompt > 0 && a.prompt_ != b.prompt_) {
    const auto begin = a.prompt_->begin();
    const size_t num_same =
        std::mismatch(begin, begin + num_prompt, b.prompt_->begin()).first -
        begin;
    if (num_same < num_prompt) return num_same;
  }
  if (a.num_prompt_ != b.num_prompt_) return num_prompt;
  const auto begin = a.generated_.begin();
  const size_t size = std::min(a.generated_.size(), b.generated_.size());
  // Usually one is a prefix of the other, and `equal` is faster.
  if (std::equal(begin, begin + size, b.generated_.begin())) {
    return num_prompt + size;
  }
  return num_prompt +
         (std::ranges::mismatch(a.generated_, b.generated_).in1 - begin);
}

}  // namespace espalier
