#include "speech/speech_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/few_cases.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kWindow = 512;

// The rule as faster-whisper's vad.py states it, where 0 stands for nothing.
std::vector<SpeechSpan> Oracle(const std::vector<float>& probabilities,
                               int64_t num_samples, const VadOptions& options) {
  const double end_threshold =
      options.neg_threshold.value_or(std::max(options.threshold - 0.15, 0.01));
  const double pad = 16 * options.speech_pad_ms;
  const double max_speech =
      16000 * options.max_speech_duration_s - kWindow - 2 * pad;
  bool triggered = false;
  int64_t start = 0, temp_end = 0, prev_end = 0, next_start = 0;
  std::vector<SpeechSpan> spans;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const double probability = probabilities[i];
    const auto at = static_cast<int64_t>(i) * kWindow;
    if (probability >= options.threshold && temp_end != 0) {
      temp_end = 0;
      if (next_start < prev_end) next_start = at;
    }
    if (probability >= options.threshold && !triggered) {
      triggered = true;
      start = at;
      continue;
    }
    if (triggered && static_cast<double>(at - start) > max_speech) {
      if (prev_end != 0) {
        spans.push_back({start, prev_end});
        if (next_start < prev_end) {
          triggered = false;
        } else {
          start = next_start;
        }
        prev_end = next_start = temp_end = 0;
      } else {
        spans.push_back({start, at});
        prev_end = next_start = temp_end = 0;
        triggered = false;
        continue;
      }
    }
    if (probability < end_threshold && triggered) {
      if (temp_end == 0) temp_end = at;
      if (at - temp_end > 16 * 98) prev_end = temp_end;
      if (static_cast<double>(at - temp_end) <
          16 * options.min_silence_duration_ms) {
        continue;
      }
      if (static_cast<double>(temp_end - start) >
          16 * options.min_speech_duration_ms) {
        spans.push_back({start, temp_end});
      }
      prev_end = next_start = temp_end = 0;
      triggered = false;
    }
  }
  if (triggered && static_cast<double>(num_samples - start) >
                       16 * options.min_speech_duration_ms) {
    spans.push_back({start, num_samples});
  }
  const auto size = static_cast<int64_t>(pad);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i == 0) spans[i].first = std::max<int64_t>(0, spans[i].first - size);
    if (i + 1 == spans.size()) {
      spans[i].end = std::min(num_samples, spans[i].end + size);
      continue;
    }
    const int64_t silence = spans[i + 1].first - spans[i].end;
    const int64_t each =
        static_cast<double>(silence) < 2 * pad ? silence / 2 : size;
    spans[i].end += each;
    spans[i + 1].first -= each;
  }
  return spans;
}

// Speech and silence of some windows each, not always clearly.
std::vector<float> RandomProbabilities(std::mt19937* random) {
  std::uniform_real_distribution<float> any(0, 1);
  const int size = static_cast<int>((*random)() % 300);
  std::vector<float> probabilities;
  bool is_speech = (*random)() % 2 == 0;
  while (std::ssize(probabilities) < size) {
    const int run = 1 + static_cast<int>((*random)() % ((*random)() % 60 + 1));
    for (int i = 0; i < run && std::ssize(probabilities) < size; ++i) {
      const float value = any(*random);
      const bool is_unclear = (*random)() % 8 == 0;
      probabilities.push_back(is_unclear  ? value
                              : is_speech ? 1 - value / 2
                                          : value / 4);
    }
    is_speech = !is_speech;
  }
  return probabilities;
}

VadOptions RandomOptions(std::mt19937* random) {
  const auto one_of = [&](std::vector<double> values) {
    return values[(*random)() % values.size()];
  };
  VadOptions options = {
      .threshold = one_of({0, 0.3, 0.5, 0.9, 1}),
      .min_speech_duration_ms = one_of({0, 32, 250, 1000}),
      .min_silence_duration_ms = one_of({0, 31, 98, 160, 500, 2000}),
      .speech_pad_ms = one_of({0, 30, 400, 1000}),
  };
  if ((*random)() % 2 == 0) {
    options.neg_threshold = options.threshold * one_of({0, 0.5, 1});
  }
  if ((*random)() % 2 == 0) {
    options.max_speech_duration_s =
        1 + 2 * options.speech_pad_ms / 1000 + one_of({0, 0.5, 2});
  }
  return options;
}

TEST(SpeechSpansTest, RandomAudioEqualsTheRuleWordForWord) {
  std::mt19937 random(1);
  int num_splits = 0;
  for (int i = 0; i < Cases(20'000, 2000); ++i) {
    const std::vector<float> probabilities = RandomProbabilities(&random);
    const VadOptions options = RandomOptions(&random);
    ASSERT_TRUE(CheckVadOptions(options).ok());
    // The last window may not be full.
    const int64_t num_samples =
        std::max<int64_t>(0, std::ssize(probabilities) * kWindow -
                                 static_cast<int64_t>(random() % kWindow));
    const std::vector<SpeechSpan> spans =
        FindSpeech(probabilities, num_samples, options);
    ASSERT_EQ(spans, Oracle(probabilities, num_samples, options)) << i;
    num_splits += std::ssize(spans) > 1;
    // In runs of any size, none begins before what was open.
    SpeechFinder finder(options);
    std::vector<SpeechSpan> found;
    int64_t first_open = 0;
    const auto expect_open = [&](size_t num_before) {
      for (size_t s = num_before; s < found.size(); ++s) {
        ASSERT_GE(found[s].first, first_open);
      }
    };
    for (size_t at = 0; at < probabilities.size();) {
      const size_t size =
          std::min<size_t>(probabilities.size() - at, random() % 40);
      const size_t num_before = found.size();
      finder.Push(std::span(probabilities).subspan(at, size), &found);
      expect_open(num_before);
      ASSERT_GE(finder.first_open(), first_open);
      first_open = finder.first_open();
      at += size;
    }
    const size_t num_before = found.size();
    finder.Finish(num_samples, &found);
    expect_open(num_before);
    ASSERT_EQ(found, spans) << i;
  }
  EXPECT_GT(num_splits, 0);
}

TEST(SpeechSpansTest, SpansAreOfTheAudioAndApart) {
  std::mt19937 random(2);
  for (int i = 0; i < Cases(5000, 500); ++i) {
    const std::vector<float> probabilities = RandomProbabilities(&random);
    const int64_t num_samples = std::ssize(probabilities) * kWindow;
    int64_t at = 0;
    for (const SpeechSpan& span :
         FindSpeech(probabilities, num_samples, RandomOptions(&random))) {
      ASSERT_LE(at, span.first);
      ASSERT_LE(span.first, span.end);
      at = span.end;
    }
    ASSERT_LE(at, num_samples);
  }
}

TEST(SpeechSpansTest, SilenceHasNone) {
  EXPECT_THAT(FindSpeech(std::vector<float>(100, 0.1f), 100 * kWindow, {}),
              IsEmpty());
  EXPECT_THAT(FindSpeech({}, 0, {}), IsEmpty());
}

TEST(SpeechSpansTest, OptionsOutOfRangeAreErrorsThatNameThem) {
  const auto error = [](const VadOptions& options) {
    return std::string(CheckVadOptions(options).message());
  };
  EXPECT_THAT(
      error({.threshold = 1.5}),
      ::testing::AllOf(HasSubstr("vad_threshold must"), HasSubstr("1.5")));
  EXPECT_THAT(error({.threshold = std::nan("")}),
              HasSubstr("vad_threshold must"));
  EXPECT_THAT(error({.threshold = 0.5, .neg_threshold = 0.6}),
              HasSubstr("vad_neg_threshold must"));
  EXPECT_THAT(error({.min_speech_duration_ms = -1}),
              HasSubstr("vad_min_speech_duration_ms must"));
  EXPECT_THAT(error({.min_silence_duration_ms = -1}),
              HasSubstr("vad_min_silence_duration_ms must"));
  EXPECT_THAT(error({.speech_pad_ms = -1}),
              HasSubstr("vad_speech_pad_ms must"));
  EXPECT_THAT(error({.max_speech_duration_s = 1.5}),
              ::testing::AllOf(HasSubstr("vad_max_speech_duration_s must"),
                               HasSubstr("1.8"), HasSubstr("1.5")));
}

TEST(SpeechTimesTest, TimesComeFromTheirSpans) {
  // One second at 2, one at 5.
  const SpeechTimes times({{32'000, 48'000}, {80'000, 96'000}});
  EXPECT_EQ(times.num_samples(), 32'000);
  EXPECT_DOUBLE_EQ(times.BeginOf(0), 2);
  EXPECT_DOUBLE_EQ(times.BeginOf(0.5), 2.5);
  EXPECT_DOUBLE_EQ(times.BeginOf(1), 5);
  EXPECT_DOUBLE_EQ(times.EndOf(1), 3);
  EXPECT_DOUBLE_EQ(times.EndOf(1.5), 5.5);
  EXPECT_DOUBLE_EQ(times.EndOf(2), 6);
  EXPECT_DOUBLE_EQ(times.EndOf(2.5), 6.5);  // in the padding of a window
}

// Windows begin at hundredths of a second and times are fiftieths after them,
// whose sums are seldom a span's end to the last bit.
TEST(SpeechTimesTest, TimesOfSpansAreTheirsHoweverTheyAreAddedUp) {
  for (int seek = 0; seek < 300; ++seek) {
    for (int step = seek == 0 ? 1 : 0; step <= 100; ++step) {
      const int64_t size = seek * 160 + step * 320;
      const SpeechTimes times({{0, size}, {size + 16'000, 2 * size + 16'000}});
      const double end = seek / 100.0 + step * 0.02;
      const double whole = static_cast<double>(size) / 16'000;
      ASSERT_NEAR(times.BeginOf(end), whole + 1, 1e-9) << seek << ' ' << step;
      ASSERT_NEAR(times.EndOf(end), whole, 1e-9) << seek << ' ' << step;
    }
  }
}

// Sample i has the value i.
std::shared_ptr<const std::vector<float>> Counted(int64_t size) {
  std::vector<float> samples(static_cast<size_t>(size));
  std::iota(samples.begin(), samples.end(), 0.0F);
  return std::make_shared<const std::vector<float>>(std::move(samples));
}

TEST(SpeechSpansTest, AReaderOfSpansReadsThemAlone) {
  const std::vector<SpeechSpan> spans = {
      {0, 3}, {3, 3}, {5, 8}, {70'000, 70'002}, {99'999, 100'001}};
  std::vector<float> expected;
  for (const SpeechSpan& span : spans) {
    for (int64_t i = span.first; i < std::min<int64_t>(span.end, 100'000);
         ++i) {
      expected.push_back(static_cast<float>(i));
    }
  }
  for (const size_t run : {1, 2, 3, 7, 100}) {
    const std::unique_ptr<AudioReader> reader = ReadSpansOnly(
        AudioReader::OpenSamples(Counted(100'000), "counted"), spans);
    EXPECT_EQ(reader->name(), "counted");
    std::vector<float> all;
    std::vector<float> some(run);
    while (true) {
      const auto num_read = reader->Read(some);
      ASSERT_TRUE(num_read.ok());
      all.insert(all.end(), some.begin(),
                 some.begin() + static_cast<ptrdiff_t>(*num_read));
      if (*num_read < run) break;
    }
    EXPECT_EQ(all, expected) << run;
  }
}

}  // namespace
}  // namespace espalier
