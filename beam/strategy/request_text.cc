#include "beam/strategy/request_text.h"

#include <utility>

#include "base/check.h"
#include "beam/strategy/selection_options.h"
#include "request/decoder_prompt.h"

namespace espalier {
namespace {

// One for all copies of the list.
std::shared_ptr<const StopStrings> StopsOf(const GenerationParams& params) {
  if (params.stop.empty()) return std::make_shared<const StopStrings>();
  return params.stop.Derived<StopStrings>({}, [&] {
    absl::StatusOr<StopStrings> stops = StopStrings::Create(params.stop);
    CHECK(stops.ok()) << stops.status().ToString();
    return *std::move(stops);
  });
}

}  // namespace

std::shared_ptr<const RequestText> RequestText::Make(
    const GenerationParams& params,
    std::shared_ptr<const Tokenizer> tokenizer) {
  if (tokenizer == nullptr) return nullptr;
  return std::make_shared<const RequestText>(params, std::move(tokenizer));
}

RequestText::RequestText(const GenerationParams& params,
                         std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)),
      stops_(StopsOf(params)),
      options_{.include_stop = params.include_stop,
               .min_new_tokens = SaturateToInt(params.min_new_tokens),
               .is_opening = OpensText(*tokenizer_, params)} {}

TextStream RequestText::Begin() const {
  return TextStream(*tokenizer_, *stops_, options_);
}

std::string RequestText::Of(std::span<const TokenId> tokens) const {
  return TextOf(tokens, *tokenizer_, *stops_, options_);
}

}  // namespace espalier
