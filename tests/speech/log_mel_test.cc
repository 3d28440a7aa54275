#include "speech/log_mel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "model/safetensors.h"
#include "speech/mel_frames_reference.h"
#include "tests/kernels/each_target.h"
#include "tests/source_tree.h"
#include "tests/speech/signals.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::LargestDifference;
using ::espalier::testing::Noise;
using ::testing::Each;
using ::testing::IsEmpty;

// The logarithms of audio pushed in runs of `run` samples.
std::vector<float> LogsInRuns(const LogMel& log_mel,
                              const std::vector<float>& samples, size_t run) {
  LogMelStream stream(log_mel);
  std::vector<float> logs;
  for (size_t i = 0; i < samples.size(); i += run) {
    stream.Push(
        std::span(samples).subspan(i, std::min(run, samples.size() - i)), logs);
  }
  stream.Finish(logs);
  return logs;
}

// By the definitions of padding and transform.
std::vector<float> ReferenceLogs(int num_bands,
                                 const std::vector<float>& samples) {
  const int size = static_cast<int>(samples.size());
  const int num_frames = size / kFrameStep;
  std::vector<float> padded;
  for (int i = -kFrameSize / 2; i < size + kFrameSize / 2; ++i) {
    int position = i;
    while (position < 0 || position >= size) {
      position = position < 0 ? -position : 2 * (size - 1) - position;
    }
    padded.push_back(samples[position]);
  }
  std::vector<float> logs(size_t(num_frames) * num_bands);
  WriteMelFramesReference(padded.data(), num_frames, MakeMelFilters(num_bands),
                          logs.data());
  return logs;
}

using LogMelTargetTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, LogMelTargetTest, EachTarget(),
                         TargetTestName);

// Lengths around steps, around the padding and around vectors of frames.
TEST_P(LogMelTargetTest, IsTheTransformOfItsDefinition) {
  for (const int num_bands : {80, 128}) {
    const LogMel log_mel(num_bands);
    for (const int size : {160, 199, 200, 201, 319, 320, 359, 360, 361, 400,
                           999, 1280, 1440, 2560, 2720, 4001}) {
      const std::vector<float> noise = Noise(size, 0.5f);
      EXPECT_LT(LargestDifference(LogsInRuns(log_mel, noise, size),
                                  ReferenceLogs(num_bands, noise)),
                1e-6)
          << size << " samples, " << num_bands << " bands";
    }
  }
}

TEST(LogMelTest, HasAFrameForEachWholeStep) {
  const LogMel log_mel(80);
  for (const int size : {0, 1, 159}) {
    EXPECT_THAT(LogMelFeatures(log_mel, Noise(size, 1)), IsEmpty()) << size;
  }
  for (const int size : {160, 319, 480'000 - 1, 480'000, 480'000 + 1}) {
    EXPECT_EQ(LogMelFeatures(log_mel, Noise(size, 1)).size(),
              size_t(size) / 160 * 80)
        << size;
  }
}

TEST_P(LogMelTargetTest, GivesTheSameBitsInRunsOfAnySize) {
  const LogMel log_mel(80);
  for (const int size : {160, 200, 201, 700, 5001}) {
    const std::vector<float> noise = Noise(size, 0.1f);
    const std::vector<float> whole = LogsInRuns(log_mel, noise, size);
    for (const size_t run : {1, 159, 160, 201, 333}) {
      EXPECT_EQ(LogsInRuns(log_mel, noise, run), whole)
          << size << " in runs of " << run;
    }
  }
}

TEST(LogMelTest, OfSilenceIsTheLeastLogarithm) {
  const std::vector<float> silence(5000);
  EXPECT_THAT(LogMelFeatures(LogMel(80), silence), Each(-1.5f));
}

TEST(LogMelTest, OfTheLoudestAudioIsFinite) {
  std::vector<float> loud;
  for (int i = 0; i < 4000; ++i) loud.push_back(i % 2 == 0 ? 1.0f : -1.0f);
  for (const float feature : LogMelFeatures(LogMel(128), loud)) {
    EXPECT_TRUE(std::isfinite(feature));
    EXPECT_LT(feature, 2.5f);
  }
}

TEST(LogMelTest, ScalesByTheLargestOfAllThatIsGiven) {
  std::vector<float> logs = {-10, -5.5f, 0, 1};
  ScaleLogMel(2, logs);
  EXPECT_THAT(logs, ::testing::ElementsAre(-0.5f, -0.375f, 1.0f, 1.25f));
}

std::vector<float> FloatsOf(const StoredTensor& tensor) {
  CHECK(tensor.dtype == "F32");
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

// tools/make_speech_references.py has what openai-whisper, run in float64,
// makes of the clips.
TEST_P(LogMelTargetTest, IsThatOfOpenai) {
  absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      SourcePath("tests/data/speech/log_mel.safetensors"));
  ASSERT_OK(file);
  int num_compared = 0;
  for (const auto& entry : file->tensors()) {
    const std::string& name = entry.first;
    if (!name.starts_with("features.")) continue;
    // features.CLIP.BANDS
    const size_t dot = name.rfind('.');
    const std::string clip = name.substr(9, dot - 9);
    const LogMel log_mel(std::stoi(name.substr(dot + 1)));
    absl::StatusOr<const StoredTensor*> audio = file->Find("audio." + clip);
    ASSERT_OK(audio);
    const std::vector<float> expected = FloatsOf(entry.second);
    EXPECT_LT(
        LargestDifference(LogMelFeatures(log_mel, FloatsOf(**audio)), expected),
        1e-6)
        << name;
    ++num_compared;
  }
  EXPECT_GE(num_compared, 8);
}

TEST(MelFiltersTest, AreTrianglesOfEqualArea) {
  for (const int num_bands : {80, 128}) {
    const MelFilters filters = MakeMelFilters(num_bands);
    ASSERT_EQ(filters.bands.size(), size_t(num_bands));
    // 391 and 394 weights are in openai's mel_filters.npz.
    EXPECT_EQ(filters.weights.size(), num_bands == 80 ? 391u : 394u);
    int num_wide = 0;
    for (const MelFilters::Band& band : filters.bands) {
      const auto weights =
          std::span(filters.weights).subspan(band.first_weight, band.num_bins);
      const auto peak = std::ranges::max_element(weights);
      EXPECT_TRUE(std::is_sorted(weights.begin(), peak));
      EXPECT_TRUE(std::is_sorted(peak, weights.end(), std::greater<>()));
      EXPECT_GT(std::ranges::min(weights), 0);
      // Sums of few bins 40 Hz apart are not yet areas.
      if (band.num_bins < 8) continue;
      ++num_wide;
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      EXPECT_NEAR(sum * 40, 1, 0.02) << band.first_bin;
    }
    EXPECT_GT(num_wide, 5);
  }
}

TEST(MelFiltersTest, OfMoreBandsThanBinsAreEmptyInPart) {
  const LogMel log_mel(512);
  for (const float feature : LogMelFeatures(log_mel, Noise(1000, 1))) {
    EXPECT_TRUE(std::isfinite(feature));
  }
}

}  // namespace
}  // namespace espalier
