// RequestText: how the texts of one request are made of tokens: by which
// tokenizer, and truncated at which stops.
//
// Constant after construction, so that a request's group and its stream share
// one. Streams refer to it, so it stays at its place.
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
  // Null without a tokenizer: there are no texts then. Else as below.
  //   context  the tokens that texts continue; empty: texts of their own
  static std::shared_ptr<const RequestText> Make(
      const GenerationParams& params,
      std::shared_ptr<const Tokenizer> tokenizer,
      std::span<const TokenId> context = {});

  // `params` as ValidateParams leaves them.
  //   begin  where texts begin (request/text_begin.h), of this tokenizer
  // REQUIRES: there is a tokenizer.
  RequestText(const GenerationParams& params,
              std::shared_ptr<const Tokenizer> tokenizer,
              const IncrementalDetokenizer& begin);
  RequestText(const RequestText&) = delete;
  RequestText& operator=(const RequestText&) = delete;

  // The text of a sequence, before its first token.
  TextStream Begin() const;

  // The text of a hypothesis.
  std::string Of(std::span<const TokenId> tokens) const;

 private:
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const IncrementalDetokenizer begin_;
  const std::shared_ptr<const StopStrings> stops_;
  const TextOptions options_;
};

}  // namespace espalier
