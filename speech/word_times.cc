#include "speech/word_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "speech/transcript_formats.h"

namespace espalier {
namespace {

constexpr double kFrameRate = 100;
constexpr std::string_view kSentenceEnds = ".。!！?？";
// Seconds: no median word is longer.
constexpr double kMaxMedian = 0.7;
// Seconds that a segment's time must differ from its word's to be kept.
constexpr double kTolerance = 0.5;

// As Python's `part in text`.
bool IsIn(std::string_view part, std::string_view text) {
  return text.find(part) != text.npos;
}

// As Python's round(seconds, 2): of the exact value, halves to even.
double RoundToHundredths(double seconds) {
  char text[400];
  std::snprintf(text, sizeof(text), "%.2f", seconds);
  return std::strtod(text, nullptr);
}

// As Python's round().
int64_t FrameAt(double seconds) {
  return static_cast<int64_t>(std::nearbyint(seconds * kFrameRate));
}

double DurationOf(const TimedWord& word) { return word.end - word.start; }
double DurationOf(const TranscriptWord& word) { return word.end - word.start; }

// Returns the median of durations above 0; 0: there is none.
double MedianDuration(std::span<const TimedWord> words) {
  std::vector<double> durations;
  for (const TimedWord& word : words) {
    if (DurationOf(word) != 0) durations.push_back(DurationOf(word));
  }
  if (durations.empty()) return 0;
  std::ranges::sort(durations);
  const size_t middle = durations.size() / 2;
  if (durations.size() % 2 == 1) return durations[middle];
  return (durations[middle - 1] + durations[middle]) / 2;
}

// Sentence ends, and words after them, that last too long are cut: they have a
// pause in them.
void CutAtSentenceEnds(double max_duration, std::span<TimedWord> words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (DurationOf(words[i]) <= max_duration) continue;
    if (IsIn(words[i].word, kSentenceEnds)) {
      words[i].end = words[i].start + max_duration;
    } else if (IsIn(words[i - 1].word, kSentenceEnds)) {
      words[i].start = words[i].end - max_duration;
    }
  }
}

// Cuts the first two words of a segment after a pause.
void CutAfterPause(double median, double last_speech,
                   std::vector<TranscriptWord>& words) {
  const double max_duration = 2 * median;
  if (words[0].end - last_speech <= median * 4) return;
  const bool has_second = words.size() > 1;
  const bool is_long =
      DurationOf(words[0]) > max_duration ||
      (has_second && words[1].end - words[0].start > max_duration * 2);
  if (!is_long) return;
  if (has_second && DurationOf(words[1]) > max_duration) {
    words[0].end = words[1].start =
        std::max(words[1].end / 2, words[1].end - max_duration);
  }
  words[0].start = std::max(0.0, words[0].end - max_duration);
}

// Gives the segment the times of its words, or its first or last word those of
// the segment if it is far longer.
void JoinTimes(double median, WindowSegment& segment) {
  TranscriptWord& first = segment.words.front();
  TranscriptWord& last = segment.words.back();
  if (segment.start < first.end && segment.start - kTolerance > first.start) {
    first.start = std::max(0.0, std::min(first.end - median, segment.start));
  } else {
    segment.start = first.start;
  }
  if (segment.end > last.start && segment.end + kTolerance < last.end) {
    last.end = std::max(last.start + median, segment.end);
  } else {
    segment.end = last.end;
  }
}

void Append(std::vector<TokenId>& to, const std::vector<TokenId>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

double AnomalyOf(const TranscriptWord& word) {
  constexpr double kLeastProbability = 0.15;
  constexpr double kShortest = 0.133;  // seconds
  constexpr double kLongest = 2;       // seconds
  const double duration = DurationOf(word);
  double score = word.probability < kLeastProbability ? 1 : 0;
  if (duration < kShortest) score += (kShortest - duration) * 15;
  if (duration > kLongest) score += duration - kLongest;
  return score;
}

// Returns the first of the segments that has words; null: none has.
const WindowSegment* FirstWithWords(std::span<const WindowSegment> segments) {
  for (const WindowSegment& segment : segments) {
    if (!segment.words.empty()) return &segment;
  }
  return nullptr;
}

}  // namespace

std::vector<TimedWord> TimeWords(std::vector<WordTokens> words,
                                 const TokenTimes& times) {
  constexpr double kStepsPerSecond = WhisperTokens::kTimesPerSecond;
  std::vector<TimedWord> timed;
  size_t first = 0;
  for (WordTokens& word : words) {
    const size_t end = first + word.tokens.size();
    CHECK_LT(end, times.steps.size());
    double sum = 0;
    for (size_t i = first; i < end; ++i) sum += times.probabilities.at(i);
    timed.push_back({.word = std::move(word.word),
                     .tokens = std::move(word.tokens),
                     .start = times.steps[first] / kStepsPerSecond,
                     .end = times.steps[end] / kStepsPerSecond,
                     .probability = sum / static_cast<double>(end - first)});
    first = end;
  }
  return timed;
}

void MergePunctuation(const WordOptions& options,
                      std::vector<TimedWord>* words) {
  const auto move_to = [](TimedWord& from) {
    from.word.clear();
    from.tokens.clear();
  };
  const auto size = std::ssize(*words);
  for (auto i = size - 2, next = size - 1; i >= 0; --i) {
    TimedWord& part = words->at(i);
    TimedWord& following = words->at(next);
    if (part.word.starts_with(' ') &&
        IsIn(StripSpace(part.word), options.prepend_punctuations)) {
      following.word = part.word + following.word;
      Append(part.tokens, following.tokens);
      following.tokens = part.tokens;
      move_to(part);
    } else {
      next = i;
    }
  }
  for (ptrdiff_t i = 1, before = 0; i < size; ++i) {
    TimedWord& part = words->at(i);
    TimedWord& previous = words->at(before);
    if (!previous.word.ends_with(' ') &&
        IsIn(part.word, options.append_punctuations)) {
      previous.word += part.word;
      Append(previous.tokens, part.tokens);
      move_to(part);
    } else {
      before = i;
    }
  }
}

void AddWords(const WordOptions& options, const WhisperTokens& whisper,
              std::vector<TimedWord> words, int64_t seek, double last_speech,
              std::span<WindowSegment> segments) {
  const double median = std::min(kMaxMedian, MedianDuration(words));
  if (median > 0) CutAtSentenceEnds(2 * median, words);
  MergePunctuation(options, &words);
  const double offset = static_cast<double>(seek) / kFrameRate;
  size_t next = 0;
  for (WindowSegment& segment : segments) {
    const auto num_tokens = static_cast<size_t>(std::ranges::count_if(
        segment.tokens, [&](TokenId token) { return whisper.IsText(token); }));
    size_t num_taken = 0;
    for (; next < words.size() && num_taken < num_tokens; ++next) {
      TimedWord& word = words[next];
      num_taken += word.tokens.size();
      if (word.word.empty()) continue;
      segment.words.push_back({.word = std::move(word.word),
                               .start = RoundToHundredths(offset + word.start),
                               .end = RoundToHundredths(offset + word.end),
                               .probability = word.probability});
    }
    if (segment.words.empty()) continue;
    CutAfterPause(median, last_speech, segment.words);
    JoinTimes(median, segment);
    last_speech = segment.end;
  }
}

std::optional<double> EndOfSpeech(std::span<const WindowSegment> segments) {
  if (segments.empty()) return std::nullopt;
  for (auto it = segments.rbegin(); it != segments.rend(); ++it) {
    if (!it->words.empty()) return it->words.back().end;
  }
  return segments.back().end;
}

bool IsAnomalous(const WindowSegment& segment) {
  constexpr int kNumWords = 8;
  const std::string punctuation =
      std::string(kPrependPunctuations).append(kAppendPunctuations);
  if (segment.words.empty()) return false;
  double score = 0;
  int count = 0;
  for (const TranscriptWord& word : segment.words) {
    if (IsIn(word.word, punctuation)) continue;
    score += AnomalyOf(word);
    if (++count == kNumWords) break;
  }
  return score >= 3 || score + 0.01 >= count;
}

NextWindow SkipSilence(const WordWindow& window, double threshold, int64_t next,
                       std::vector<WindowSegment>* segments) {
  constexpr double kEdge = 2;  // seconds of a window that count as silence
  const double begin = static_cast<double>(window.seek) / kFrameRate;
  const double end =
      static_cast<double>(window.seek + window.max_frames) / kFrameRate;
  if (!window.ends_with_time) {
    const std::optional<double> last = EndOfSpeech(*segments);
    if (last && *last > begin) {
      next = end - *last > threshold ? FrameAt(*last)
                                     : window.seek + window.num_frames;
    }
  }
  const WindowSegment* const first = FirstWithWords(*segments);
  if (first != nullptr && IsAnomalous(*first)) {
    const double gap = first->start - begin;
    if (gap > threshold) {
      segments->clear();
      return {.first = window.seek + FrameAt(gap), .is_repeat = true};
    }
  }
  double last_end = window.last_speech;
  for (size_t i = 0; i < segments->size(); ++i) {
    const WindowSegment& segment = (*segments)[i];
    if (segment.words.empty()) continue;
    if (IsAnomalous(segment)) {
      const WindowSegment* const following =
          FirstWithWords(std::span(*segments).subspan(i + 1));
      const double next_start =
          following != nullptr
              ? following->words.front().start
              : begin + static_cast<double>(window.num_frames) / kFrameRate;
      const bool is_silent_before = segment.start - last_end > threshold ||
                                    segment.start < threshold ||
                                    segment.start - begin < kEdge;
      const bool is_silent_after =
          next_start - segment.end > threshold ||
          (following != nullptr && IsAnomalous(*following)) ||
          end - segment.end < kEdge;
      if (is_silent_before && is_silent_after) {
        next = FrameAt(std::max(begin + 1, segment.start));
        const double duration =
            static_cast<double>(window.audio_frames) / kFrameRate;
        if (duration - segment.end < threshold) next = window.audio_frames;
        segments->resize(i);
        break;
      }
    }
    last_end = segment.end;
  }
  return {.first = next};
}

}  // namespace espalier
