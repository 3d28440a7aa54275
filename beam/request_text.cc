#include "beam/request_text.h"

#include <utility>

#include "base/check.h"
#include "beam/selection_options.h"

namespace espalier {
namespace {

StopStrings StopsOf(const GenerationParams& params) {
  absl::StatusOr<StopStrings> stops = StopStrings::Create(params.stop);
  CHECK(stops.ok()) << stops.status().ToString();
  return *std::move(stops);
}

}  // namespace

RequestText::RequestText(const GenerationParams& params,
                         const Tokenizer* tokenizer)
    : tokenizer_(tokenizer),
      stops_(StopsOf(params)),
      options_{.include_stop = params.include_stop,
               .min_new_tokens = SaturateToInt(params.min_new_tokens)} {}

std::optional<TextStream> RequestText::Begin() const {
  if (!has_tokenizer()) return std::nullopt;
  return TextStream(*tokenizer_, stops_, options_);
}

std::string RequestText::Of(std::span<const TokenId> tokens) const {
  CHECK(has_tokenizer()) << "a text needs a tokenizer";
  return TextOf(tokens, *tokenizer_, stops_, options_);
}

}  // namespace espalier
