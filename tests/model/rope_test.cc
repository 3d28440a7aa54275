#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<RopeParameters> Read(const std::string& text, int head_dim = 64,
                                    const RopeRules& rules = {}) {
  ASSIGN_OR_RETURN(const json::value config, ParseJson(text));
  return ReadRopeParameters(config.get_object(), 131072, head_dim, rules);
}

// "1.5, 1.6, 1.7": `count` numbers from `first` on.
std::string Numbers(int count, double first, double step) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    list += Concat(i > 0 ? ", " : "", first + step * i);
  }
  return list;
}

using Figures = std::vector<std::pair<int, double>>;

// `expected` are float32.
void ExpectFrequencies(const RopeParameters& rope, int head_dim,
                       const Figures& expected) {
  const auto frequencies = InverseFrequencies(rope, head_dim);
  for (const auto& [i, frequency] : expected) {
    EXPECT_NEAR(frequencies[i], frequency, 1e-6 * frequency) << i;
  }
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

// Up to max_position_embeddings, where contexts end.
TEST(RopeTest, DynamicScalingIsNoneWithinTheContext) {
  ASSERT_OK_AND_ASSIGN(
      const RopeParameters rope,
      Read(R"({"rope_scaling": {"type": "dynamic", "factor": 4}})"));
  EXPECT_EQ(InverseFrequencies(rope, 64), InverseFrequencies({}, 64));
  EXPECT_EQ(rope.attention_factor, 1);
  EXPECT_EQ(MaxContext(rope, 500), 500);
}

// The figures of this and the next test are those of transformers 5.23.
TEST(RopeTest, YarnBlendsBetweenTwoNumbersOfTurns) {
  ASSERT_OK_AND_ASSIGN(RopeParameters rope, Read(R"({
      "rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "factor": 4,
      "original_max_position_embeddings": 32768}})",
                                                 128));
  EXPECT_NEAR(rope.attention_factor, 1.138629436111989, 1e-12);
  ExpectFrequencies(rope, 128,
                    {{0, 1.0},
                     {20, 0.01333521492779255},
                     {23, 0.006978305988013744},
                     {24, 0.005375321488827467},
                     {30, 0.0010643609566614032},
                     {36, 0.0001798411540221423},
                     {39, 6.490394298452884e-05},
                     {40, 4.4456985051510856e-05},
                     {63, 3.102344408034696e-07}});
  ASSERT_OK_AND_ASSIGN(rope, Read(R"({"rope_parameters": {
      "rope_type": "yarn", "factor": 40, "rope_theta": 1e4, "mscale": 1.0,
      "original_max_position_embeddings": 4096, "mscale_all_dim": 0.707,
      "beta_fast": 16, "beta_slow": 2, "truncate": false}})"));
  EXPECT_NEAR(rope.attention_factor, 1.0857263992561355, 1e-12);
  ExpectFrequencies(rope, 64,
                    {{0, 1.0},
                     {10, 0.05623412877321243},
                     {11, 0.04216964915394783},
                     {14, 0.015096119605004787},
                     {17, 0.0033299592323601246},
                     {20, 0.00012395245721563697},
                     {31, 3.3338035336782923e-06}});
  ASSERT_OK_AND_ASSIGN(rope, Read(R"({"rope_parameters": {
      "rope_type": "yarn", "factor": 8, "attention_factor": 0.9,
      "original_max_position_embeddings": 2048},
      "original_max_position_embeddings": 4096})"));
  EXPECT_EQ(rope.attention_factor, 0.9);
  ExpectFrequencies(rope, 64,
                    {{12, 0.02736586518585682}, {20, 0.0010338216088712215}});
}

TEST(RopeTest, LongRopeDividesEachPairAndEndsTheContext) {
  const std::string text = Concat(
      R"({"original_max_position_embeddings": 4096, "rope_scaling": {)"
      R"("type": "longrope", "short_factor": [)",
      Numbers(32, 1, 0.01), R"(], "long_factor": [)", Numbers(32, 1, 1), "]}}");
  ASSERT_OK_AND_ASSIGN(const RopeParameters rope, Read(text));
  EXPECT_NEAR(rope.attention_factor, 1.1902380714238083, 1e-12);
  EXPECT_EQ(MaxContext(rope, 131072), 4096);
  EXPECT_EQ(MaxContext(rope, 100), 100);
  ExpectFrequencies(rope, 64,
                    {{0, 1.0},
                     {1, 0.7424694895744324},
                     {10, 0.05112193524837494},
                     {31, 0.00010179553646594286}});
}

TEST(RopeTest, APartOfAHeadMayBeRotated) {
  const std::string text = Concat(
      R"({"original_max_position_embeddings": 4096, "rope_scaling": {)"
      R"("type": "su", "partial_rotary_factor": 0.75, "short_factor": [)",
      Numbers(24, 1, 0.01), R"(], "long_factor": [)", Numbers(24, 1, 1), "]}}");
  ASSERT_OK_AND_ASSIGN(
      const RopeParameters rope,
      Read(text, 64, {.allows_partial = true, .has_old_longrope_names = true}));
  EXPECT_EQ(rope.RotaryDim(64), 48);
  EXPECT_EQ(InverseFrequencies(rope, 64).size(), 24u);
  ExpectFrequencies(rope, 64,
                    {{1, 0.6745465993881226},
                     {10, 0.01958576962351799},
                     {23, 0.00011933330097235739}});
  EXPECT_EQ(
      Read(R"({"partial_rotary_factor": 0.5})", 64, {.allows_partial = true})
          ->RotaryDim(64),
      32);
}

TEST(RopeTest, WhatIsNotImplementedOrOutOfRangeIsNamed) {
  const std::tuple<const char*, const char*> cases[] = {
      {R"({"rope_theta": 0})", "rope_theta must be a number in (0"},
      {R"({"rope_theta": "big"})", "rope_theta"},
      {R"({"rope_scaling": 3})", "rope_scaling must be an object, got 3"},
      {R"({"rope_scaling": {"rope_type": "proportional", "factor": 2}})",
       "rope_type must be default, linear, dynamic, llama3, yarn or longrope, "
       "got \"proportional\""},
      {R"({"rope_scaling": {"rope_type": "su"}})", "got \"su\""},
      {R"({"rope_parameters": {"rope_type": "dynamic"}})", "factor is missing"},
      {R"({"rope_parameters": {"rope_type": "yarn"}})", "factor is missing"},
      {R"({"rope_theta": 1,
           "rope_parameters": {"rope_type": "yarn", "factor": 2}})",
       "rope_theta must be above 1 with rope_type yarn, got 1"},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 2,
           "beta_fast": 1, "beta_slow": 3}})",
       "beta_fast 1 must be at least beta_slow 3"},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 2,
           "mscale": -1, "mscale_all_dim": 1}})",
       "mscale must be a number in (0"},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 2,
           "truncate": 0}})",
       "truncate must be true or false, got 0"},
      {R"({"rope_parameters": {"rope_type": "yarn", "factor": 2,
           "attention_factor": 0}})",
       "attention_factor must be a number in (0"},
      {R"({"rope_parameters": {"rope_type": "longrope"}})",
       "short_factor must be a list of 32 numbers, got nothing"},
      {R"({"rope_parameters": {"rope_type": "longrope",
           "short_factor": [1, 2]}})",
       "short_factor must be a list of 32 numbers, got [1"},
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
      {R"({"partial_rotary_factor": 0.75})",
       "partial_rotary_factor must be 1, got 0.75"},
      {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "partial_rotary_factor must be 1, got 0.5"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(message)))
        << text;
  }
  const std::string zeros = Concat(
      R"({"rope_parameters": {"rope_type": "longrope", "short_factor": [)",
      Numbers(32, 0, 1), R"(], "long_factor": [)", Numbers(31, 1, 1), "]}}");
  EXPECT_THAT(Read(zeros),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("short_factor must hold numbers in (0, ")));
  EXPECT_THAT(
      Read(R"({"partial_rotary_factor": 0.05})", 64, {.allows_partial = true}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("partial_rotary_factor 0.05 of a head of 64 "
                         "must be an even number of dimensions")));
}

}  // namespace
}  // namespace espalier
