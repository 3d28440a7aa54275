// RequestText: the tokenizer and the stop strings that turn one request's
// tokens into texts.
//
// Constant after construction, so that a request's group and its stream share
// it. Streams refer to it, so it cannot be copied.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "request/generation_params.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class RequestText {
 public:
  // Returns null without a tokenizer, because there are no texts then.
  //   context  tokens that the texts continue; empty: independent texts
  static std::shared_ptr<const RequestText> Make(
      const GenerationParams& params,
      std::shared_ptr<const Tokenizer> tokenizer,
      std::span<const TokenId> context = {});

  // `params` as ValidateParams leaves them.
  //   begin  state before the texts' first token (request/text_begin.h),
  //          made by this tokenizer
  // REQUIRES: `tokenizer` is not null.
  RequestText(const GenerationParams& params,
              std::shared_ptr<const Tokenizer> tokenizer,
              const IncrementalDetokenizer& begin);
  RequestText(const RequestText&) = delete;
  RequestText& operator=(const RequestText&) = delete;

  // Returns the text stream of a sequence, before its first token.
  TextStream Begin() const;

  // Returns the text of a hypothesis.
  std::string Of(std::span<const TokenId> tokens) const;

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const IncrementalDetokenizer begin_;
  const std::shared_ptr<const StopStrings> stops_;
  const TextOptions options_;
};

}  // namespace espalier
