#include "speech/feature_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "speech/log_mel.h"
#include "tests/speech/signals.h"
#include "tests/speech/whisper_fixture.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

constexpr int kBands = 80;

OpenAudio OpenSamples(const std::vector<float>& samples) {
  const auto shared = std::make_shared<const std::vector<float>>(samples);
  return [shared] { return AudioReader::OpenSamples(shared, "samples"); };
}

// As openai: features of the audio with 30 s of silence behind it.
std::vector<float> FeaturesBeforeSilence(std::vector<float> samples) {
  const int64_t num_frames =
      LogMel::NumFrames(static_cast<int64_t>(samples.size()));
  samples.resize(samples.size() + 30 * kSpeechRate);
  std::vector<float> features = LogMelFeatures(LogMel(kBands), samples);
  features.resize(static_cast<size_t>(num_frames * kBands));
  return features;
}

TEST(FeatureWindowsTest, AreThoseOfTheWholeAudioWhateverIsReadAtOnce) {
  std::vector<float> samples = Noise(5 * kSpeechRate + 77, 0.1F);
  const std::vector<float> loud = Sine(700, kSpeechRate, 4000, 0.9);
  std::ranges::copy(loud, samples.end() - 9000);
  const std::vector<float> all = FeaturesBeforeSilence(samples);
  for (const int block : {1, 159, 4096, 1 << 16, 1 << 20}) {
    auto windows = FeatureWindows::Open(OpenSamples(samples), kBands, block);
    ASSERT_OK(windows);
    EXPECT_EQ(windows->num_frames(), 500);
    EXPECT_DOUBLE_EQ(windows->duration(), 5 + 77.0 / 16000);
    for (const auto& [first, size] : std::vector<std::pair<int, int>>{
             {0, 300}, {0, 300}, {7, 100}, {260, 200}, {499, 300}}) {
      const auto window = windows->Window(first, size, 300);
      ASSERT_OK(window);
      if (first >= 260) windows->ForgetBefore(first);
      EXPECT_EQ((*window)->shape, (FeatureShape{300, kBands}));
      std::vector<float> expected(size_t{300} * kBands);
      const int num_rows = std::min(size, 500 - first);
      std::copy_n(all.begin() + first * kBands, num_rows * kBands,
                  expected.begin());
      EXPECT_EQ((*window)->values, expected) << first << " " << block;
    }
  }
}

TEST(FeatureWindowsTest, FarOnesNeedNotBeReadWithAllBeforeThem) {
  const std::vector<float> samples = Noise(60 * kSpeechRate, 0.1F);
  auto windows = FeatureWindows::Open(OpenSamples(samples), kBands, 1 << 12);
  ASSERT_OK(windows);
  windows->ForgetBefore(5900);
  windows->ForgetBefore(3);
  const auto window = windows->Window(5900, 100, 100);
  ASSERT_OK(window);
  const std::vector<float> all = FeaturesBeforeSilence(samples);
  EXPECT_EQ((*window)->values,
            std::vector<float>(all.begin() + 5900 * kBands, all.end()));
}

TEST(FeatureWindowsTest, ForgottenOnesAreTheSameAfterRewinding) {
  const std::vector<float> samples = Noise(7 * kSpeechRate, 0.5F);
  const OpenAudio open = OpenSamples(samples);
  auto windows = FeatureWindows::Open(open, kBands);
  ASSERT_OK(windows);
  const auto first = windows->Window(100, 300, 300);
  ASSERT_OK(first);
  windows->ForgetBefore(500);
  ASSERT_OK(windows->Window(500, 200, 300));
  ASSERT_OK(windows->RewindTo(100, open));
  const auto again = windows->Window(100, 300, 300);
  ASSERT_OK(again);
  EXPECT_EQ((*again)->values, (*first)->values);
  // Frames that are there are not read again.
  ASSERT_OK(windows->RewindTo(
      100, [] { return absl::InternalError("must not be opened"); }));
}

TEST(FeatureWindowsTest, OfSilenceAreFinite) {
  auto windows =
      FeatureWindows::Open(OpenSamples(std::vector<float>(1600)), kBands);
  ASSERT_OK(windows);
  const auto window = windows->Window(0, 10, 20);
  ASSERT_OK(window);
  EXPECT_EQ((*window)->values[0], -1.5F);
  EXPECT_EQ((*window)->values.back(), 0);
}

TEST(FeatureWindowsTest, NeedAFrameOfAudio) {
  for (const int size : {0, 159}) {
    EXPECT_THAT(
        FeatureWindows::Open(OpenSamples(std::vector<float>(size)), kBands)
            .status(),
        StatusIs(kInvalid,
                 HasSubstr(Concat("samples must have at least 10 ms of "
                                  "audio, got ",
                                  size, " samples at 16 kHz"))));
  }
  ASSERT_OK(FeatureWindows::Open(OpenSamples(std::vector<float>(160)), kBands));
}

TEST(FeatureWindowsTest, NoticeAudioThatHasBecomeShorter) {
  int size = 2 * 16000;
  const OpenAudio open = [&] {
    return AudioReader::OpenSamples(
        std::make_shared<const std::vector<float>>(
            static_cast<size_t>(std::exchange(size, 16000))),
        "samples");
  };
  auto windows = FeatureWindows::Open(open, kBands);
  ASSERT_OK(windows);
  EXPECT_THAT(windows->Window(50, 150, 300).status(),
              StatusIs(kInvalid, HasSubstr("has become shorter")));
}

}  // namespace
}  // namespace espalier
