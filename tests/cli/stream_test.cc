// `espalier generate --stream` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
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
              ElementsAre(text, "  " + plain[1].substr(kScoreWidth), plain[1]));
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

// "  [2]   -0.1529  Il", as the list has it; not "  [2]  Il", a piece.
bool IsOfTheList(const std::string& line) {
  return std::regex_match(line, std::regex("  \\[\\d+\\] +-\\d+\\.\\d{4}  .*"));
}

TEST(StreamTest, SeveralSamplesComePieceByPieceWithTheNumbersOfTheList) {
  // Only likely tokens, so that some samples are equal.
  std::vector<std::string> args = {"--do-sample", "--num-return-sequences",
                                   "5",           "--best-of",
                                   "8",           "--seed",
                                   "7",           "--top-k",
                                   "2",           "--max-tokens",
                                   "3",           "Where is the station?"};
  const auto plain = SplitLines(GenerateText(args).out);
  ASSERT_THAT(plain, SizeIs(7));  // with the seed
  args.insert(args.begin(), "--stream");
  std::map<std::string, std::string> samples;
  std::vector<std::string> list;
  std::set<std::string> numbers;
  for (const std::string& line : SplitLines(GenerateText(args).out)) {
    if (!line.starts_with("  [")) {
      list.push_back(line);
      continue;
    }
    const size_t end = line.find(']');
    const std::string number = line.substr(3, end - 3);
    if (!IsOfTheList(line)) {
      samples[number] += line.substr(end + 2);
      continue;
    }
    list.push_back(line.substr(end + 1));
    EXPECT_EQ(samples[number], list.back().substr(kScoreWidth));
    EXPECT_TRUE(numbers.insert(number).second) << line;
  }
  EXPECT_EQ(list, plain);
  EXPECT_THAT(samples, SizeIs(8));
  EXPECT_THAT(numbers, SizeIs(5));
}

TEST(StreamTest, TextEndsBeforeAStop) {
  const ProgramRun run =
      GenerateText({"--stream", "--stop", "trouve", "Where is the station?"});
  EXPECT_THAT(SplitLines(run.out),
              ElementsAre("Where is the station?", "  O\u00f9 se ",
                          HasSubstr("O\u00f9 se ")));
}

TEST(StreamTest, TextsComeInTheirOrderAndOneThatFailsLeavesTheOthers) {
  const ProgramRun run = GenerateText(
      {"--stream", "It rains.", std::string("\xff"), "I am hungry."});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("prompt is not UTF-8"));
  const auto lines = SplitLines(run.out);
  EXPECT_THAT(lines, ElementsAre("It rains.", "  Il pleut.",
                                 HasSubstr("  Il pleut."), "", "I am hungry.",
                                 "  J'ai faim !", HasSubstr("  J'ai faim !")));
}

TEST(StreamTest, ARefusedRequestSaysWhy) {
  const ProgramRun run =
      GenerateText({"--stream", "--num-beams", "0", "It rains."});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--num-beams must be at least 1, got 0"));
}

}  // namespace
}  // namespace espalier::testing
