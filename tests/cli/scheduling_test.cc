// Effects of the scheduling options and fields in `espalier batch`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramRun RunBatchOf(const std::string& input,
                      std::vector<std::string> options) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr")});
  return RunEspalier(options, input);
}

// The tokens of its prompt that each line shared.
std::vector<int64_t> CachedTokens(const ProgramRun& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::vector<int64_t> counts;
  for (const json::value& line : ParseLines(run.out)) {
    counts.push_back(line.at("usage").at("cached_tokens").as_int64());
  }
  return counts;
}

TEST(SchedulingTest, CachedTokensAreThoseThatAnotherLineComputed) {
  const auto line = [](const std::string& params) {
    std::string tokens = "1";
    for (int i = 2; i <= 21; ++i) tokens += ", " + std::to_string(i + 300);
    return R"({"prompt_tokens": [)" + tokens + R"(], "params": {)" + params +
           R"("max_tokens": 3}})" + "\n";
  };
  const std::vector<std::string> one_by_one = {"--max-running", "1",
                                               "--page-size", "4"};
  // The last of 21 tokens is always fed.
  const ProgramRun run = RunBatchOf(line("") + line("") + line(""), one_by_one);
  EXPECT_THAT(CachedTokens(run), ElementsAre(0, 20, 20));
  const std::vector<json::value> lines = ParseLines(run.out);
  EXPECT_EQ(lines[0].at("hypotheses"), lines[2].at("hypotheses"));

  const std::string salt = R"("cache_salt": "a", )";
  EXPECT_THAT(CachedTokens(RunBatchOf(
                  line("") + line(salt) + line(salt) + line(""), one_by_one)),
              ElementsAre(0, 0, 20, 20));
  const std::string no_cache = R"("prefix_cache": false, )";
  EXPECT_THAT(CachedTokens(RunBatchOf(
                  line(no_cache) + line("") + line(no_cache), one_by_one)),
              ElementsAre(0, 0, 0));
  std::vector<std::string> off = one_by_one;
  off.insert(off.end(), {"--prefix-cache", "off", "--figures"});
  const ProgramRun run_off = RunBatchOf(line("") + line(""), off);
  EXPECT_THAT(CachedTokens(run_off), ElementsAre(0, 0));
  EXPECT_THAT(run_off.err, HasSubstr("42 prompt tokens and 0 cached"));
  std::vector<std::string> on = one_by_one;
  on.insert(on.end(), {"--prefix-cache", "on", "--figures"});
  EXPECT_THAT(RunBatchOf(line("") + line(""), on).err,
              HasSubstr("22 prompt tokens and 20 cached"));
}

// Two wait while the first line runs. The last one comes before the second, and
// computes what that shares.
TEST(SchedulingTest, LinesThatWaitRunByPriority) {
  const auto line = [](const std::string& tokens, const std::string& params) {
    return R"({"prompt_tokens": [)" + tokens + R"(], "params": {)" + params +
           "}}\n";
  };
  const std::string tokens = "1, 7, 8, 9, 10, 11";
  const std::string num_steps = std::to_string(Cases(500, 100));
  const ProgramRun run = RunBatchOf(
      line("50", R"("priority": -9, "num_beams": 8, "ignore_eos": true,)"
                 R"( "max_tokens": )" +
                     num_steps) +
          line(tokens, R"("priority": 5, "max_tokens": 2)") +
          line(tokens, R"("priority": -5, "max_tokens": 2)"),
      {"--max-running", "1", "--page-size", "1"});
  EXPECT_THAT(CachedTokens(run), ElementsAre(0, 5, 0));
}

// 500 steps of 8 beams do not fit a millisecond.
TEST(SchedulingTest, ALineEndsAtItsDeadline) {
  const ProgramRun run = RunBatchOf(
      R"({"prompt": "No.", "params": {"num_beams": 8, "max_tokens": 500,)"
      R"( "ignore_eos": true, "deadline_ms": 1}})"
      "\n",
      {});
  EXPECT_THAT(run.out, AnyOf(HasSubstr(R"("finish_reason": "deadline")"),
                             HasSubstr(R"("code": "DEADLINE_EXCEEDED")")));
}

TEST(SchedulingTest, WrongPrefixCacheIsNamed) {
  const ProgramRun run =
      RunBatchOf(R"({"prompt": "No."})", {"--prefix-cache", "maybe"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              StartsWith("espalier: batch: --prefix-cache must be on or off, "
                         "got \"maybe\"\n"));
}

TEST(SchedulingTest, GenerateHasTheFieldsAsOptions) {
  const auto generate = [](std::vector<std::string> options) {
    options.insert(options.begin(),
                   {"generate", "-m", ModelDirectory("en-fr"), "It rains."});
    return RunEspalier(options);
  };
  const ProgramRun plain = generate({});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  // A salt is a text, also where it looks like something else.
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--prefix-cache", "off"},
        {"--prefix-cache", "on", "--cache-salt", "5", "--priority", "-3"},
        {"--cache-salt", "[x", "--prefill-share", "1"},
        {"--cache-salt", "true", "--prefill-share", "0"},
        {"--tenant", "7", "--deadline-ms", "2147483647"}}) {
    const ProgramRun run = generate(options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out, plain.out);
  }
}

// No step is as fast, and that of a long prompt is not over either when the
// program looks. It does not wait for it.
TEST(StepTimeoutTest, ALateStepEndsAllRequestsAndTheProgram) {
  std::string line = R"({"prompt_tokens": [1)";
  for (int i = 0; i < 100; ++i) line += ", 3";
  line += "]}";
  for (int i = 0; i < 5; ++i) {
    const ProgramRun run = RunBatchOf(line + "\n" + line + "\n",
                                      {"--step-timeout", "0.000000001"});
    EXPECT_EQ(run.exit_code, 1) << run.err;
    const std::vector<json::value> lines = ParseLines(run.out);
    ASSERT_EQ(lines.size(), 2);
    for (const json::value& answer : lines) {
      EXPECT_EQ(answer.at("error").at("code").as_string(), "UNAVAILABLE");
      EXPECT_THAT(std::string(answer.at("error").at("message").as_string()),
                  HasSubstr("within 1ns"));
    }
  }
}

TEST(StepTimeoutTest, OneThatIsNotReachedChangesNothing) {
  const std::string line = R"({"prompt_tokens": [1, 2, 3], "params": )"
                           R"({"num_beams": 3, "max_tokens": 9}})";
  EXPECT_EQ(RunBatchOf(line + "\n", {"--step-timeout", "60"}).out,
            RunBatchOf(line + "\n", {}).out);
}

}  // namespace
}  // namespace espalier::testing
