#include "speech/whisper_segments.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"
#include "base/field_error.h"

namespace espalier {
namespace {

constexpr int kFramesPerSecond = 100;
constexpr int kFramesPerStep =
    kFramesPerSecond / WhisperTokens::kTimesPerSecond;
// As openai computes it, so that sums of it have the same bits.
constexpr double kSecondsPerStep = 0.02;

// The places where a segment begins behind the end of the one before it.
std::vector<size_t> Cuts(std::span<const TokenId> tokens,
                         const WhisperTokens& whisper) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (whisper.IsTime(tokens[i - 1]) && whisper.IsTime(tokens[i])) {
      cuts.push_back(i);
    }
  }
  return cuts;
}

// A single time, with text before it.
bool EndsWithOneTime(std::span<const TokenId> tokens,
                     const WhisperTokens& whisper) {
  const size_t size = tokens.size();
  return size >= 2 && whisper.IsTime(tokens[size - 1]) &&
         !whisper.IsTime(tokens[size - 2]);
}

std::vector<TokenId> FirstOf(std::vector<TokenId> tokens, size_t count) {
  tokens.resize(std::min(tokens.size(), count));
  return tokens;
}

// Appends as many of the last of `tokens` as there is room for.
void AppendEnd(std::span<const TokenId> tokens, size_t max_size,
               std::vector<TokenId>* to) {
  const size_t count = std::min(max_size - to->size(), tokens.size());
  to->insert(to->end(), tokens.end() - static_cast<ptrdiff_t>(count),
             tokens.end());
}

}  // namespace

CutWindow CutIntoSegments(std::span<const TokenId> tokens,
                          const WhisperTokens& whisper, int64_t seek,
                          int64_t num_frames) {
  CHECK_GE(num_frames, 1);
  const double offset = static_cast<double>(seek) / kFramesPerSecond;
  const double latest =
      static_cast<double>(seek + num_frames) / kFramesPerSecond;
  const auto at_step = [&](int step) {
    return std::min(offset + step * kSecondsPerStep, latest);
  };
  CutWindow window{.num_frames = num_frames,
                   .ends_with_one_time = EndsWithOneTime(tokens, whisper)};
  std::vector<size_t> cuts = Cuts(tokens, whisper);
  if (cuts.empty()) {
    double end = latest;
    const auto last =
        std::find_if(tokens.rbegin(), tokens.rend(),
                     [&](TokenId token) { return whisper.IsTime(token); });
    if (last != tokens.rend() && *last != whisper.first_time()) {
      end = at_step(whisper.StepOf(*last));
    }
    window.segments.push_back({offset, end, {tokens.begin(), tokens.end()}});
    return window;
  }
  if (window.ends_with_one_time) {
    cuts.push_back(tokens.size());
  } else {
    // At least one frame, so that a window of no length does not come again.
    window.num_frames = std::clamp<int64_t>(
        kFramesPerStep * whisper.StepOf(tokens[cuts.back() - 1]), 1,
        num_frames);
  }
  size_t first = 0;
  for (const size_t cut : cuts) {
    const auto slice = tokens.subspan(first, cut - first);
    // A segment without a time at its beginning begins with the window.
    const int begin =
        whisper.IsTime(slice.front()) ? whisper.StepOf(slice.front()) : 0;
    const int end = whisper.StepOf(slice.back());
    first = cut;
    window.segments.push_back({at_step(begin),
                               at_step(end),
                               {slice.begin(), slice.end()},
                               /*is_instant=*/begin == end});
  }
  return window;
}

PreviousText::PreviousText(std::vector<TokenId> initial, bool carries,
                           std::vector<TokenId> hotwords, int max_tokens)
    : max_tokens_(static_cast<size_t>(max_tokens)),
      always_(FirstOf(std::move(hotwords), max_tokens_)) {
  if (carries) {
    AppendEnd(initial, max_tokens_, &always_);
  } else {
    tokens_ = std::move(initial);
  }
}

void PreviousText::Reset() { tokens_.clear(); }

std::vector<TokenId> PreviousText::Prompt() const {
  std::vector<TokenId> prompt = always_;
  AppendEnd(tokens_, max_tokens_, &prompt);
  return prompt;
}

absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> ClipsOf(
    std::span<const double> times, int64_t num_frames) {
  std::vector<int64_t> frames;
  double before = 0;
  for (const double time : times) {
    if (!(time >= before) || !std::isfinite(time)) {
      return InvalidField(
          OptionName{"clip_timestamps"}, " must be seconds in ascending order",
          frames.empty() ? Got(time) : Got(time, " after ", before));
    }
    before = time;
    // Halves to even, as Python's round().
    const double frame = std::nearbyint(time * kFramesPerSecond);
    frames.push_back(frame < static_cast<double>(num_frames)
                         ? static_cast<int64_t>(frame)
                         : num_frames);
  }
  if (frames.empty()) frames.push_back(0);
  if (frames.size() % 2 == 1) frames.push_back(num_frames);
  std::vector<std::pair<int64_t, int64_t>> clips;
  for (size_t i = 0; i < frames.size(); i += 2) {
    if (frames[i] < frames[i + 1]) clips.emplace_back(frames[i], frames[i + 1]);
  }
  return clips;
}

}  // namespace espalier
