#include "speech/resampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "speech/sinc_filter.h"
#include "tests/kernels/each_target.h"
#include "tests/speech/signals.h"

namespace espalier {
namespace {

using ::espalier::testing::LargestDifference;
using ::espalier::testing::Noise;
using ::espalier::testing::Sine;

// All at once, by the definition in double.
std::vector<double> ResampleReference(const std::vector<float>& samples,
                                      int from_hz, int to_hz) {
  const SincFilter filter(from_hz, to_hz);
  const int64_t size = static_cast<int64_t>(samples.size());
  std::vector<double> out;
  for (int64_t n = 0; n * from_hz < size * to_hz; ++n) {
    const double time = static_cast<double>(n) * from_hz / to_hz;
    const auto first = static_cast<int64_t>(std::ceil(time - filter.reach()));
    const auto last = static_cast<int64_t>(std::floor(time + filter.reach()));
    double sum = 0;
    for (int64_t i = std::max<int64_t>(first, 0); i <= std::min(last, size - 1);
         ++i) {
      sum += samples[i] * filter(static_cast<double>(i) - time);
    }
    out.push_back(sum);
  }
  return out;
}

// Pushed in runs of `run` samples.
std::vector<float> Resample(const std::vector<float>& samples, int from_hz,
                            int to_hz, size_t run = 100'000) {
  Resampler resampler(from_hz, to_hz);
  std::vector<float> out;
  for (size_t i = 0; i < samples.size(); i += run) {
    resampler.Push(
        std::span(samples).subspan(i, std::min(run, samples.size() - i)), out);
  }
  resampler.Finish(out);
  return out;
}

// Not longer at high rates, whose reference takes long.
std::vector<float> NoiseAt(int from_hz) {
  return Noise(std::clamp(from_hz / 20, 300, 12'800), 1);
}

class ResamplerTest : public ::testing::TestWithParam<int> {};

// 7999, 44101 and 767,999 Hz have more positions than the filter is stored for.
TEST_P(ResamplerTest, IsTheSumOfItsDefinition) {
  const int from_hz = GetParam();
  const std::vector<float> noise = NoiseAt(from_hz);
  const std::vector<double> expected = ResampleReference(noise, from_hz, 16000);
  for (const int64_t target : Targets()) {
    const TargetChoice choice(target);
    EXPECT_LT(LargestDifference(Resample(noise, from_hz, 16000), expected),
              5e-6)
        << hwy::TargetName(target);
  }
}

TEST_P(ResamplerTest, GivesTheSameSamplesInRunsOfAnySize) {
  const int from_hz = GetParam();
  const std::vector<float> noise = NoiseAt(from_hz);
  const std::vector<float> whole = Resample(noise, from_hz, 16000);
  EXPECT_EQ(Resample(noise, from_hz, 16000, 1), whole);
  EXPECT_EQ(Resample(noise, from_hz, 16000, 77), whole);
}

INSTANTIATE_TEST_SUITE_P(Rates, ResamplerTest,
                         ::testing::Values(1000, 7999, 8000, 11025, 22050,
                                           32000, 44100, 44101, 48000, 96000,
                                           767'999, 768000));

TEST(ResamplerTest, HasASampleForEachStepThatBeginsInTheInput) {
  for (const auto& [size, from_hz, expected] :
       std::vector<std::tuple<int, int, size_t>>{{0, 48000, 0},
                                                 {1, 48000, 1},
                                                 {3, 48000, 1},
                                                 {4, 48000, 2},
                                                 {1, 8000, 2},
                                                 {1, 1000, 16},
                                                 {441, 44100, 160},
                                                 {442, 44100, 161},
                                                 {5, 16000, 5}}) {
    EXPECT_EQ(Resample(Noise(size, 1), from_hz, 16000).size(), expected)
        << size << " at " << from_hz;
  }
}

// Headers of untrusted files choose the rate.
TEST(ResamplerTest, StoresASmallFilterForAnyRate) {
  for (const int from_hz :
       {1000, 1001, 15'999, 16'001, 44'101, 100'003, 767'984, 767'999}) {
    const double ratio = std::max(1.0, from_hz / 16000.0);
    EXPECT_LE(Resampler(from_hz, 16000).filter_bytes(), (520 + ratio) * 1024)
        << from_hz;
  }
}

TEST(ResamplerTest, KeepsSamplesOfTheSameRate) {
  const std::vector<float> noise = Noise(1000, 1);
  EXPECT_EQ(Resample(noise, 16000, 16000), noise);
  EXPECT_EQ(Resample(noise, 16000, 16000, 77), noise);
}

// Away from the ends, where the audio begins and ends suddenly.
double LargestInTheMiddle(const std::vector<double>& samples) {
  double largest = 0;
  for (size_t i = 1000; i + 1000 < samples.size(); ++i) {
    largest = std::max(largest, std::abs(samples[i]));
  }
  return largest;
}

// -90 dB is 3.2e-5.
TEST(ResamplerTest, KeepsWhatBothRatesCanHave) {
  for (const int from_hz :
       {8000, 22050, 44100, 48000, 44101, 192000, 767'999}) {
    const double limit = 0.9 * std::min(from_hz, 16000) / 2;
    for (const double part : {0.01, 0.3, 0.7, 1.0}) {
      const double hz = part * limit;
      const std::vector<float> out =
          Resample(Sine(hz, from_hz, from_hz / 2, 1), from_hz, 16000);
      const std::vector<float> expected =
          Sine(hz, 16000, static_cast<int>(out.size()), 1);
      std::vector<double> difference;
      for (size_t i = 0; i < out.size(); ++i) {
        difference.push_back(out[i] - expected[i]);
      }
      EXPECT_LT(LargestInTheMiddle(difference), 3.2e-5)
          << hz << " Hz at " << from_hz;
    }
  }
}

TEST(ResamplerTest, DropsWhatTheLowerRateCannotHave) {
  for (const int from_hz : {22050, 44100, 48000, 44101, 192000, 767'999}) {
    for (const double hz : {8001.0, 9000.0, from_hz * 0.49}) {
      const std::vector<float> out =
          Resample(Sine(hz, from_hz, from_hz / 2, 1), from_hz, 16000);
      EXPECT_LT(LargestInTheMiddle(std::vector<double>(out.begin(), out.end())),
                3.2e-5)
          << hz << " Hz at " << from_hz;
    }
  }
}

}  // namespace
}  // namespace espalier
