// Input of `espalier batch`: its beginning, its line ends, and lines that are
// too long or malicious.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/cli/batch_runs.h"
#include "tests/cli/program.h"
#include "tests/few_cases.h"
#include "tests/request/json/malformed_request.h"

namespace espalier::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(BatchInputTest, AByteOrderMarkIsNoPartOfTheFirstLine) {
  const ProgramRun run =
      RunBatch("\xEF\xBB\xBF" + std::string(kGoodLine) + "\r\n\r\n");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_EQ(run.out, RunBatch(kGoodLine).out);
}

TEST(BatchInputTest, NorOfItsLength) {
  const std::string line(kGoodLine);
  for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
    for (int num_fewer : {0, 1, 2, 3, 4}) {
      const ProgramRun run = RunBatch(
          mark + line + "\n" + line.substr(0, 20),
          {"--max-line-bytes", std::to_string(line.size() - num_fewer)});
      EXPECT_EQ(run.exit_code, 1);
      const json::value first = ParseLines(run.out).at(0);
      EXPECT_EQ(first.as_object().contains("hypotheses"), num_fewer == 0);
      if (num_fewer == 0) continue;
      EXPECT_THAT(run.out,
                  HasSubstr(Concat("a line may have ", line.size() - num_fewer,
                                   " bytes")));
    }
  }
}

TEST(BatchInputTest, NorIsALineEnd) {
  const std::string line(kGoodLine);
  for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
    for (const std::string end : {"\n", "\r\n"}) {
      for (int num_fewer : {0, 1, 2, 3}) {
        const ProgramRun run = RunBatch(
            mark + line + end + line + end,
            {"--max-line-bytes", std::to_string(line.size() - num_fewer)});
        for (const json::value& answer : ParseLines(run.out)) {
          EXPECT_EQ(answer.as_object().contains("hypotheses"), num_fewer == 0)
              << num_fewer << " fewer: " << run.out;
        }
      }
    }
  }
}

TEST(BatchInputTest, WhatIsNoTextIsNamedOnce) {
  const std::pair<std::string, std::string> kCases[] = {
      {std::string("\x1F\x8B\x08\x00\n\x80\n\xFF", 8),
       "compressed by gzip, it must be lines in UTF-8: give what \"gzip -dc\""},
      {std::string("\xFF\xFE{\0\n\0}\0", 8), "UTF-16"},
      {"\xFE\xFF", "UTF-16"},
      {std::string("\xFF\xFE\0\0{\0\0\0", 8), "UTF-32"},
      {"PK\x03\x04...", "a zip archive"}};
  for (const auto& [input, expected] : kCases) {
    const ProgramRun run = RunBatch(input);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, StartsWith(Concat("espalier: stdin is ", expected)));
    EXPECT_THAT(run.err, EndsWith(" makes of it\n"));
  }
}

TEST(BatchInputTest, NoRequestsAreSaidToBeNone) {
  for (const char* const input : {"", "\n \n"}) {
    const ProgramRun run = RunBatch(input);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, "espalier: note: no requests in stdin\n");
  }
}

TEST(BatchInputTest, AnEndlessLineIsRefusedAndDisturbsNobody) {
  const ProgramRun run =
      RunBatch(std::string(20 << 20, 'x') + "\n" + kGoodLine);
  EXPECT_EQ(run.exit_code, 1);
  const std::vector<json::value> lines = ParseLines(run.out);
  EXPECT_EQ(lines.at(0).at("error").at("message"),
            json::value("a line may have 16777216 bytes "
                        "(--max-line-bytes), this one has more"));
  EXPECT_TRUE(lines.at(1).as_object().contains("hypotheses"));
}

TEST(BatchInputTest, TheLimitsOfALineAreOptions) {
  const std::string tokens = R"({"id": 1.50, "prompt_tokens": [1, 4, 264, 5]})";
  const std::vector<json::value> lines = ParseLines(
      RunBatch(tokens + "\n" + std::string(200, 'x') + "\n" + kGoodLine,
               {"--max-line-bytes", "100", "--max-list-elements", "3"})
          .out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("error").at("message"),
            json::value("prompt_tokens must have at most 3 elements "
                        "(--max-list-elements), got 4"));
  EXPECT_EQ(lines[1].at("error").at("message"),
            json::value("a line may have 100 bytes (--max-line-bytes), this "
                        "one has more"));
  EXPECT_TRUE(lines[2].as_object().contains("hypotheses"));
  for (const char* option : {"--max-line-bytes", "--max-list-elements"}) {
    for (const char* value : {"0", "-1", "1073741825", "1e6", "perhaps"}) {
      const ProgramRun run = RunBatch(kGoodLine, {option, value});
      EXPECT_EQ(run.exit_code, 2);
      EXPECT_THAT(run.err, HasSubstr(Concat(
                               option, " must be an integer in [1, 1073741824]",
                               ", got \"", value, "\"\n")));
    }
    EXPECT_EQ(RunBatch(kGoodLine, {option, "1073741824"}).exit_code, 0);
  }
  // A number is decimal, with zeros in front too.
  EXPECT_THAT(RunBatch(kGoodLine, {"--max-line-bytes", "010"}).out,
              HasSubstr("a line may have 10 bytes"));
}

TEST(BatchInputTest, HostileLinesDisturbNobody) {
  const auto list = [](const std::string& item, size_t size) {
    std::string text = "[" + item;
    while (text.size() < size) text += "," + item;
    return text + "]";
  };
  const size_t unit = Cases(1 << 20, 1 << 16);
  std::string sequence = "[5";
  for (int i = 0; i < 899; ++i) sequence += "," + std::to_string(6 + i);
  const std::string good = RunBatch(kGoodLine).out;
  for (const std::string& line :
       {WithParams(R"({"allowed_sequences": )" +
                   list(sequence + "]", unit / 2) + R"(, "stop_token_ids": )" +
                   list("5999", unit / 2) + "}"),
        WithParams(R"({"bad_words_ids": )" + list("[7]", unit) + "}"),
        WithParams(R"({"suppress_tokens": )" + list("7", 15 * unit) + "}"),
        WithParams(R"({"stop": )" + list(R"("")", 4 * unit) + "}"),
        R"({"prompt_tokens": )" + list("7", 15 * unit) + "}",
        R"({"prompt_tokens": )" + list("7", 15 * unit),
        R"({"prompt": ")" + std::string(15 * unit, 'a') + R"("})",
        R"({"prompt": "It )" + std::string(15 * unit, ' ') + R"(rains."})",
        R"({"prompt": [")" + std::string(15 * unit, 'a') + R"("]})",
        std::string(15 * unit, '['), std::string(30 * unit, '{')}) {
    const ProgramRun run = RunBatch(line + "\n" + kGoodLine);
    const std::vector<std::string> answers = SplitLines(run.out);
    ASSERT_EQ(answers.size(), 2u) << line.substr(0, 80);
    EXPECT_LT(answers[0].size(), 100'000u);
    EXPECT_EQ(ParseLines(run.out)[1].at("hypotheses"),
              ParseLines(good)[0].at("hypotheses"));
  }
}

}  // namespace
}  // namespace espalier::testing
