// `espalier generate --stream` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ProgramRun GenerateText(std::vector<std::string> args) {
  args.insert(args.begin(), {"generate", "-m", ModelDirectory("en-fr")});
  return RunEspalier(args);
}

constexpr size_t kScoreWidth = 12;  // "   -0.1529  "

TEST(StreamTest, OneSamplesTextFollowsItsPrompt) {
  const std::string text = "Where is the station?";
  const auto plain = SplitLines(GenerateText({text}).out);
  ASSERT_THAT(plain, SizeIs(2));
  const ProgramRun run = GenerateText({"--stream", text});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(SplitLines(run.out),
              ElementsAre(text, "  " + plain[1].substr(kScoreWidth)));
}

TEST(StreamTest, WhatBeamsAgreeOnComesBeforeTheirList) {
  std::vector<std::string> args = {
      "--num-beams", "5", "--num-return-sequences", "3",
      "Where is the station, and who has seen it?"};
  const auto plain = SplitLines(GenerateText(args).out);
  ASSERT_THAT(plain, SizeIs(4));
  args.insert(args.begin(), "--stream");
  auto streamed = SplitLines(GenerateText(args).out);
  ASSERT_THAT(streamed, SizeIs(5));
  const std::string agreed = streamed[1].substr(2);
  EXPECT_GT(agreed.size(), 10);
  streamed.erase(streamed.begin() + 1);
  EXPECT_EQ(streamed, plain);
  for (size_t i = 1; i < plain.size(); ++i) {
    EXPECT_TRUE(plain[i].substr(kScoreWidth).starts_with(agreed)) << plain[i];
  }
}

TEST(StreamTest, SeveralSamplesComePieceByPieceWithTheirNumbers) {
  std::vector<std::string> args = {
      "--do-sample", "--num-return-sequences", "2", "--best-of", "3", "--seed",
      "7",           "Where is the station?"};
  const auto plain = SplitLines(GenerateText(args).out);
  ASSERT_THAT(plain, SizeIs(4));  // with the seed
  args.insert(args.begin(), "--stream");
  const auto streamed = SplitLines(GenerateText(args).out);
  std::map<char, std::string> samples;
  std::vector<std::string> list;
  for (const std::string& line : streamed) {
    if (line.starts_with("  [")) {
      samples[line[3]] += line.substr(6);
    } else {
      list.push_back(line);
    }
  }
  EXPECT_EQ(list, plain);
  EXPECT_THAT(samples, SizeIs(3));
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::any_of(samples, [&](const auto& sample) {
      return sample.second == plain[i].substr(kScoreWidth);
    })) << plain[i];
  }
}

TEST(StreamTest, TextEndsBeforeAStop) {
  const ProgramRun run =
      GenerateText({"--stream", "--stop", "trouve", "Where is the station?"});
  EXPECT_THAT(SplitLines(run.out),
              ElementsAre("Where is the station?", "  O\u00f9 se "));
}

TEST(StreamTest, TextsComeInTheirOrderAndOneThatFailsLeavesTheOthers) {
  const ProgramRun run = GenerateText(
      {"--stream", "It rains.", std::string("\xff"), "I am hungry."});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("prompt is not UTF-8"));
  const auto lines = SplitLines(run.out);
  EXPECT_THAT(lines, ElementsAre("It rains.", "  Il pleut.", "", "I am hungry.",
                                 "  J'ai faim !"));
}

TEST(StreamTest, ARefusedRequestSaysWhy) {
  const ProgramRun run =
      GenerateText({"--stream", "--num-beams", "0", "It rains."});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("num_beams must be at least 1, got 0"));
}

}  // namespace
}  // namespace espalier::testing
