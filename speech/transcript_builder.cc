#include "speech/transcript_builder.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"
#include "base/status.h"
#include "speech/transcript_formats.h"

namespace espalier {

TranscriptBuilder::TranscriptBuilder(const Tokenizer& tokenizer,
                                     const WhisperTokens& whisper,
                                     PreviousText previous,
                                     TranscriptBuilderOptions options)
    : tokenizer_(tokenizer),
      whisper_(whisper),
      options_(std::move(options)),
      previous_(std::move(previous)) {}

std::optional<AudioWindow> TranscriptBuilder::Next() {
  for (; clip_ < options_.clips.size(); ++clip_) {
    const auto [first, end] = options_.clips[clip_];
    if (!is_in_clip_) seek_ = first;
    is_in_clip_ = seek_ < end;
    if (!is_in_clip_) continue;
    window_ = {seek_, std::min(options_.window_frames, end - seek_)};
    return window_;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> TranscriptBuilder::TextOf(
    std::span<const TokenId> tokens) const {
  std::vector<TokenId> text;
  for (const TokenId token : tokens) {
    if (whisper_.IsText(token)) text.push_back(token);
  }
  return tokenizer_.Decode(text);
}

void TranscriptBuilder::AddPrevious(std::span<const TokenId> tokens) {
  std::vector<TokenId> kept;
  for (const TokenId token : tokens) {
    if (whisper_.IsText(token) || whisper_.IsTime(token)) kept.push_back(token);
  }
  previous_.Add(kept);
}

absl::StatusOr<bool> TranscriptBuilder::AddWordsTo(CutWindow& cut,
                                                   std::string_view language,
                                                   const AlignFunction& align) {
  std::vector<TokenId> text;
  for (const WindowSegment& segment : cut.segments) {
    std::ranges::copy_if(segment.tokens, std::back_inserter(text),
                         [&](TokenId token) { return whisper_.IsText(token); });
  }
  if (!text.empty()) {
    CHECK(align != nullptr);
    ASSIGN_OR_RETURN(const TokenTimes times, align(text));
    AddWords(
        *options_.words, whisper_,
        TimeWords(SplitIntoWords(tokenizer_, text, HasSpaces(language)), times),
        window_.first, last_speech_, cut.segments);
  }
  const double begin = static_cast<double>(window_.first) / 100;
  const std::optional<double> end = EndOfSpeech(cut.segments);
  if (!cut.ends_with_one_time && end && *end > begin) {
    seek_ = std::lrint(*end * 100);
  }
  NextWindow next = {.first = seek_};
  if (options_.hallucination_silence) {
    next = SkipSilence({.seek = window_.first,
                        .num_frames = window_.size,
                        .max_frames = options_.window_frames,
                        .audio_frames = options_.audio_frames,
                        .last_speech = last_speech_,
                        .ends_with_time = cut.ends_with_one_time},
                       *options_.hallucination_silence, seek_, &cut.segments);
  }
  // At least one frame, as without words.
  seek_ = std::max(next.first, window_.first + 1);
  if (next.is_repeat) return false;
  last_speech_ = EndOfSpeech(cut.segments).value_or(last_speech_);
  return true;
}

absl::StatusOr<std::vector<TranscriptSegment>> TranscriptBuilder::Add(
    DecodedWindow decoded, const AlignFunction& align) {
  const int64_t seek = window_.first;
  const bool is_silent = IsSilent(
      options_.thresholds, decoded.quality.avg_logprob, decoded.no_speech_prob);
  transcript_.windows.push_back(
      {.seek = seek,
       .start = static_cast<double>(seek) / 100,
       .end = static_cast<double>(seek + window_.size) / 100,
       .is_silent = is_silent,
       .temperature = decoded.temperature,
       .no_speech_prob = decoded.no_speech_prob,
       .alternatives = std::move(decoded.alternatives)});
  std::vector<TranscriptSegment> segments;
  if (is_silent) {
    seek_ = seek + window_.size;
    return segments;
  }
  CutWindow cut = CutIntoSegments(decoded.tokens, whisper_, seek, window_.size);
  seek_ = seek + cut.num_frames;
  if (options_.words) {
    ASSIGN_OR_RETURN(const bool is_done,
                     AddWordsTo(cut, decoded.language, align));
    if (!is_done) return segments;
  }
  auto id = static_cast<int64_t>(transcript_.segments.size());
  for (WindowSegment& segment : cut.segments) {
    const bool is_instant = segment.words.empty()
                                ? segment.is_instant
                                : segment.start == segment.end;
    if (is_instant) continue;
    ASSIGN_OR_RETURN(std::string text, TextOf(segment.tokens));
    if (StripSpace(text).empty()) continue;
    AddPrevious(segment.tokens);
    tokens_.insert(tokens_.end(), segment.tokens.begin(), segment.tokens.end());
    segments.push_back({.id = id++,
                        .seek = seek,
                        .start = segment.start,
                        .end = segment.end,
                        .text = std::move(text),
                        .tokens = std::move(segment.tokens),
                        .temperature = decoded.temperature,
                        .avg_logprob = decoded.quality.avg_logprob,
                        .compression_ratio = decoded.quality.compression_ratio,
                        .no_speech_prob = decoded.no_speech_prob});
    if (options_.has_languages) segments.back().language = decoded.language;
    if (options_.words) segments.back().words = std::move(segment.words);
  }
  if (!options_.condition_on_previous_text ||
      decoded.temperature > options_.prompt_reset_on_temperature) {
    previous_.Reset();
  }
  transcript_.segments.insert(transcript_.segments.end(), segments.begin(),
                              segments.end());
  return segments;
}

absl::StatusOr<Transcript> TranscriptBuilder::Take() {
  ASSIGN_OR_RETURN(transcript_.text, TextOf(tokens_));
  return std::exchange(transcript_, {});
}

}  // namespace espalier
