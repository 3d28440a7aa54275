#include "openai/live_beams.h"

#include <cstdint>
#include <utility>

#include "base/hash.h"
#include "openai/answer_parts.h"
#include "request/text_begin.h"

namespace espalier::openai {
LiveBeams::LiveBeams(const PromptParts& prompt, const Tokenizer* tokenizer)
    : tokenizer_(tokenizer) {
  if (tokenizer == nullptr) return;
  stops_ = std::make_unique<const StopStrings>(
      MakeStops(prompt.params.stop, *tokenizer));
  begin_.emplace(TextBeginOf(prompt, *tokenizer), *stops_,
                 TextOptionsOf(prompt.params));
}

size_t LiveBeams::TokensHash::operator()(
    const std::vector<TokenId>& tokens) const {
  return HashOf({reinterpret_cast<const char*>(tokens.data()),
                 tokens.size() * sizeof(TokenId)});
}

LiveBeams::GrowingText LiveBeams::TextOf(
    const std::vector<TokenId>& tokens) const {
  // A hypothesis that was there before, or a beam that a live one became.
  auto known = texts_.find(tokens);
  size_t num_known = tokens.size();
  if (known == texts_.end() && num_tokens_of_live_ < tokens.size()) {
    num_known = num_tokens_of_live_;
    known = texts_.find({tokens.begin(), tokens.begin() + num_known});
  }
  if (known == texts_.end()) num_known = 0;
  GrowingText text =
      known == texts_.end() ? GrowingText{*begin_, ""} : known->second;
  for (size_t i = num_known; i < tokens.size(); ++i) {
    text.text += text.stream.Feed(tokens[i]).text;
  }
  return text;
}

void LiveBeams::GrowTexts(const BeamsEvent& event) {
  Texts texts;
  size_t num_tokens_of_live = 0;
  for (const BeamState& beam : event.beams) {
    if (!texts.contains(beam.tokens)) {
      texts.emplace(beam.tokens, TextOf(beam.tokens));
    }
    if (!beam.finish_reason) num_tokens_of_live = beam.tokens.size();
  }
  texts_ = std::move(texts);
  num_tokens_of_live_ = num_tokens_of_live;
}

void LiveBeams::Append(int prompt, const BeamsEvent& event, std::string* out) {
  if (tokenizer_ != nullptr) GrowTexts(event);
  AppendField(R"({"prompt":)", int64_t{prompt}, out);
  if (event.sentence) {
    AppendField(R"(,"sentence":)", int64_t{*event.sentence}, out);
  }
  AppendField(R"(,"step":)", event.num_steps, out);
  *out += R"(,"beams":)";
  AppendList(
      event.beams, [&](const BeamState& beam) { AppendBeam(beam, out); }, out);
  *out += '}';
}

void LiveBeams::AppendBeam(const BeamState& beam, std::string* out) const {
  *out += '{';
  if (tokenizer_ != nullptr) {
    const GrowingText& known = texts_.at(beam.tokens);
    std::string text = known.text;
    if (beam.finish_reason) text += TextStream(known.stream).Finish().text;
    AppendField(R"("text":)", std::string_view(text), out);
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
}

}  // namespace espalier::openai
