#include "openai/live_beams.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "openai/answer_parts.h"
#include "request/decoder_prompt.h"

namespace espalier::openai {
namespace {

std::unique_ptr<const StopStrings> StopsOf(const GenerationParams& params) {
  absl::StatusOr<StopStrings> stops = StopStrings::Create(params.stop);
  CHECK(stops.ok()) << stops.status().ToString();
  return std::make_unique<const StopStrings>(*std::move(stops));
}

}  // namespace

LiveBeams::LiveBeams(const GenerationParams& params, const Tokenizer* tokenizer)
    : tokenizer_(tokenizer),
      stops_(StopsOf(params)),
      options_{.include_stop = params.include_stop,
               .min_new_tokens = static_cast<int>(std::min<int64_t>(
                   params.min_new_tokens, std::numeric_limits<int>::max())),
               .is_opening =
                   tokenizer == nullptr || OpensText(*tokenizer, params)} {}

std::string LiveBeams::TextOf(const BeamState& beam) const {
  TextStream stream(*tokenizer_, *stops_, options_);
  std::string text;
  for (const TokenId token : beam.tokens) text += stream.Feed(token).text;
  if (beam.finish_reason) text += stream.Finish().text;
  return text;
}

void LiveBeams::Append(int prompt, const BeamsEvent& event,
                       std::string* out) const {
  AppendField(R"({"prompt":)", int64_t{prompt}, out);
  AppendField(R"(,"step":)", event.num_steps, out);
  *out += R"(,"beams":)";
  AppendList(
      event.beams,
      [&](const BeamState& beam) {
        *out += '{';
        if (tokenizer_ != nullptr) {
          AppendField(R"("text":)", std::string_view(TextOf(beam)), out);
          *out += ',';
        }
        *out += R"("tokens":)";
        AppendIds(beam.tokens, out);
        AppendField(R"(,"score":)", beam.score, out);
        AppendField(R"(,"cum_log_prob":)", beam.cum_log_prob, out);
        *out += R"(,"finish_reason":)";
        if (beam.finish_reason) {
          AppendFinishReason(*beam.finish_reason, out);
        } else {
          *out += "null";
        }
        *out += '}';
      },
      out);
  *out += '}';
}

}  // namespace espalier::openai
