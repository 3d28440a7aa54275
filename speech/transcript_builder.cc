#include "speech/transcript_builder.h"

#include <algorithm>

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

absl::StatusOr<std::vector<TranscriptSegment>> TranscriptBuilder::Add(
    DecodedWindow decoded) {
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
  auto id = static_cast<int64_t>(transcript_.segments.size());
  for (WindowSegment& segment : cut.segments) {
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
