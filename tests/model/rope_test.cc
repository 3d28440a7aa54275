#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<RopeParameters> Read(const std::string& text) {
  ASSIGN_OR_RETURN(const json::value config, ParseJson(text));
  return ReadRopeParameters(config.get_object(), 131072);
}

TEST(RopeTest, ThetaIsFoundInEitherPlaceAndTheInnerOneWins) {
  EXPECT_EQ(Read("{}")->theta, 10000.0);
  EXPECT_EQ(Read(R"({"rope_theta": 500000})")->theta, 500000.0);
  EXPECT_EQ(Read(R"({"rope_parameters": {"rope_theta": 7.5}})")->theta, 7.5);
  EXPECT_EQ(
      Read(R"({"rope_theta": 3, "rope_parameters": {"rope_theta": 7}})")->theta,
      7.0);
  EXPECT_EQ(Read(R"({"rope_theta": 3, "rope_scaling": null})")->theta, 3.0);
}

TEST(RopeTest, LinearScalingDividesEveryFrequency) {
  for (const char* text :
       {R"({"rope_scaling": {"type": "linear", "factor": 4.0}})",
        R"({"rope_parameters": {"rope_type": "linear", "factor": 4}})"}) {
    ASSERT_OK_AND_ASSIGN(const RopeParameters linear, Read(text));
    const auto scaled = InverseFrequencies(linear, 64);
    const auto plain = InverseFrequencies({}, 64);
    ASSERT_EQ(scaled.size(), 32u);
    EXPECT_EQ(plain[0], 1.0);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(scaled[i], plain[i] / 4.0);
  }
}

// The figures are those of transformers' formula for Llama 3.1.
TEST(RopeTest, Llama3ScalesLongWavesAndKeepsShortOnes) {
  ASSERT_OK_AND_ASSIGN(const RopeParameters rope, Read(R"({
      "rope_theta": 500000.0,
      "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                       "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 8192}})"));
  const auto frequencies = InverseFrequencies(rope, 128);
  const std::vector<std::pair<int, double>> expected = {
      {0, 1.0},
      {10, 0.12868737343265052},
      {28, 0.0032114459947525913},
      {29, 0.002166570763503359},
      {30, 0.0013718935677611381},
      {33, 0.00031269375038406517},
      {34, 0.00017850781276799638},
      {35, 9.556212353964683e-05},
      {36, 7.78465527393245e-05},
      {63, 3.068925988914511e-07}};
  for (const auto& [i, frequency] : expected) {
    EXPECT_NEAR(frequencies[i], frequency, 1e-12 * frequency) << i;
  }
}

TEST(RopeTest, WhatIsNotImplementedOrOutOfRangeIsNamed) {
  const std::tuple<const char*, const char*> cases[] = {
      {R"({"rope_theta": 0})", "rope_theta must be a number in (0"},
      {R"({"rope_theta": "big"})", "rope_theta"},
      {R"({"rope_scaling": 3})", "rope_scaling must be an object, got 3"},
      {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2}})",
       "rope_type must be default, linear or llama3, got \"yarn\""},
      {R"({"rope_parameters": {"rope_type": "dynamic"}})", "\"dynamic\""},
      {R"({"rope_scaling": {"rope_type": "linear"}})", "factor is missing"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": -1}})",
       "factor must be a number in (0"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 2,
           "low_freq_factor": 4, "high_freq_factor": 4}})",
       "high_freq_factor 4 must be above low_freq_factor 4"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 2,
           "low_freq_factor": 1, "high_freq_factor": 4,
           "original_max_position_embeddings": 0}})",
       "original_max_position_embeddings"},
      {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "partial_rotary_factor must be 1, got 0.5"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(message)))
        << text;
  }
}

}  // namespace
}  // namespace espalier
