#include "speech/whisper_fallback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/speech/whisper_fixture.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

TEST(CompressionRatioTest, IsThatOfOpenai) {
  const json::value references = TranscriptReferences();
  for (const json::value& line : references.at("ratios").as_array()) {
    EXPECT_EQ(CompressionRatio(std::string(line.at(0).as_string())),
              line.at(1).to_number<double>())
        << line.at(0);
  }
}

TEST(NeedsFallbackTest, OfTextsThatRepeatThemselvesOrAreUnlikely) {
  const FallbackThresholds on;
  EXPECT_FALSE(NeedsFallback(on, {-1.0, 2.4}, 0.9));
  EXPECT_TRUE(NeedsFallback(on, {-1.001, 1.0}, 0.6));
  EXPECT_TRUE(NeedsFallback(on, {-0.1, 2.401}, 0.9));
  // Silence, even if it repeats itself.
  EXPECT_FALSE(NeedsFallback(on, {-1.001, 3.0}, 0.61));
  EXPECT_FALSE(NeedsFallback({.compression_ratio = {}}, {-0.1, 9}, 0));
  EXPECT_FALSE(NeedsFallback({.logprob = {}}, {-9, 1}, 0));
  // Without a threshold of silence, or of log-probabilities, none is silence.
  EXPECT_TRUE(NeedsFallback({.no_speech = {}}, {-9, 1}, 1));
  EXPECT_TRUE(NeedsFallback({.logprob = {}}, {-9, 3}, 1));
}

TEST(IsSilentTest, NeedsAnUnlikelyText) {
  EXPECT_TRUE(IsSilent({}, -1.0, 0.61));
  EXPECT_FALSE(IsSilent({}, -0.999, 0.61));
  EXPECT_FALSE(IsSilent({}, -9, 0.6));
  EXPECT_TRUE(IsSilent({.logprob = {}}, -0.1, 0.61));
  EXPECT_FALSE(IsSilent({.no_speech = {}}, -9, 1));
}

TEST(BestOfFailedTest, PrefersTextsThatDoNotRepeatThemselves) {
  const auto best = [](std::vector<DecodedQuality> tries) {
    return BestOfFailed({}, tries);
  };
  EXPECT_EQ(best({{-2, 1}, {-1.5, 1}, {-0.1, 3}}), 1u);
  EXPECT_EQ(best({{-2, 3}, {-1.5, 3}, {-1.7, 3}}), 1u);
  EXPECT_EQ(best({{-2, 1}, {-2, 1}}), 0u);
  EXPECT_EQ(best({{NAN, 1}}), 0u);
}

}  // namespace
}  // namespace espalier
