#include "beam/strategy/request_text.h"

#include <utility>

#include "request/text_begin.h"

namespace espalier {
namespace {

// Returns one object for all copies of the list.
std::shared_ptr<const StopStrings> StopsOf(const GenerationParams& params,
                                           const Tokenizer& tokenizer) {
  if (params.stop.empty()) return std::make_shared<const StopStrings>();
  return params.stop.Derived<StopStrings>(
      {tokenizer.number()}, [&] { return MakeStops(params.stop, tokenizer); });
}

}  // namespace

std::shared_ptr<const RequestText> RequestText::Make(
    const GenerationParams& params, std::shared_ptr<const Tokenizer> tokenizer,
    std::span<const TokenId> context) {
  if (tokenizer == nullptr) return nullptr;
  const IncrementalDetokenizer begin =
      TextBeginAfter(*tokenizer, params, context);
  return std::make_shared<const RequestText>(params, std::move(tokenizer),
                                             begin);
}

RequestText::RequestText(const GenerationParams& params,
                         std::shared_ptr<const Tokenizer> tokenizer,
                         const IncrementalDetokenizer& begin)
    : tokenizer_(std::move(tokenizer)),
      begin_(begin),
      stops_(StopsOf(params, *tokenizer_)),
      options_(TextOptionsOf(params)) {}

TextStream RequestText::Begin() const {
  return TextStream(begin_, *stops_, options_);
}

std::string RequestText::Of(std::span<const TokenId> tokens) const {
  return TextOf(tokens, begin_, *stops_, options_);
}

}  // namespace espalier
