#include "speech/transcript_json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace espalier {
namespace {

json::array JsonOf(const std::vector<TokenId>& tokens) {
  return json::array(tokens.begin(), tokens.end());
}

// Sums of times have more digits than they are given in.
double Hundredths(double seconds) {
  return std::nearbyint(seconds * 100) / 100;
}

json::array JsonOf(const std::vector<TranscriptWord>& words) {
  json::array array;
  for (const TranscriptWord& word : words) {
    array.push_back(json::object{{"word", word.word},
                                 {"start", Hundredths(word.start)},
                                 {"end", Hundredths(word.end)},
                                 {"probability", word.probability}});
  }
  return array;
}

json::object JsonOf(const TranscriptWindow& window) {
  json::array alternatives;
  for (const TranscriptAlternative& alternative : window.alternatives) {
    alternatives.push_back(
        json::object{{"text", alternative.text},
                     {"tokens", JsonOf(alternative.tokens)},
                     {"score", alternative.score},
                     {"avg_logprob", alternative.avg_logprob}});
  }
  return {{"seek", window.seek},
          {"start", window.start},
          {"end", window.end},
          {"is_silent", window.is_silent},
          {"temperature", window.temperature},
          {"no_speech_prob", window.no_speech_prob},
          {"alternatives", std::move(alternatives)}};
}

}  // namespace

json::object ToJson(const TranscriptSegment& segment) {
  json::object object = {{"id", segment.id},
                         {"seek", segment.seek},
                         {"start", segment.start},
                         {"end", segment.end},
                         {"text", segment.text},
                         {"tokens", JsonOf(segment.tokens)},
                         {"temperature", segment.temperature},
                         {"avg_logprob", segment.avg_logprob},
                         {"compression_ratio", segment.compression_ratio},
                         {"no_speech_prob", segment.no_speech_prob}};
  if (!segment.language.empty()) object["language"] = segment.language;
  if (segment.words) {
    object["start"] = Hundredths(segment.start);
    object["end"] = Hundredths(segment.end);
    object["words"] = JsonOf(*segment.words);
  }
  return object;
}

json::object ToJson(const Transcript& transcript) {
  json::array segments;
  for (const TranscriptSegment& segment : transcript.segments) {
    segments.push_back(ToJson(segment));
  }
  json::object object = {
      {"text", transcript.text},
      {"segments", std::move(segments)},
      {"language", transcript.language},
      {"language_probability", transcript.language_probability},
      {"duration", transcript.duration}};
  json::array windows;
  for (const TranscriptWindow& window : transcript.windows) {
    if (!window.alternatives.empty()) windows.push_back(JsonOf(window));
  }
  if (!windows.empty()) object["windows"] = std::move(windows);
  return object;
}

}  // namespace espalier
