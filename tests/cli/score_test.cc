// espalier score: a table of continuations, and JSON lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

ProgramRun Score(std::vector<std::string> args, const std::string& input = "") {
  args.insert(args.begin(), {"score", "-m", ModelDirectory("en-fr")});
  return RunEspalier(args, input);
}

TEST(ScoreTest, ATableHasTheBestFirst) {
  const ProgramRun run = Score({"Where is the station?", "Il pleut.",
                                "Où se trouve la gare ?", "--append-eos"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::vector<std::string> lines = SplitLines(run.out);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_THAT(lines[0], HasSubstr("log prob"));
  EXPECT_THAT(lines[1], HasSubstr("yes  \"Où se trouve la gare ?\""));
  EXPECT_THAT(lines[1], HasSubstr("-0.6045"));
  EXPECT_THAT(lines[2], HasSubstr("no  \"Il pleut.\""));
}

TEST(ScoreTest, LinesAreAnsweredInOrderAndBadOnesInTheirPlaces) {
  const ProgramRun run = Score(
      {"--json"},
      R"({"id": "a", "prompt": "It rains.", "continuations": ["Il pleut.", [300, 301]]})"
      "\n\n"
      R"({"prompt": "It rains."})"
      "\n"
      R"({"prompt_tokens": [1, 4, 5], "continuations": [[300], [301]]})"
      "\n"
      R"({"prompt": "a", "continuations": ["b"], "beams": 4})"
      "\n");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const std::vector<json::value> lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0].at("id"), "a");
  const json::array& scores = lines[0].at("scores").as_array();
  ASSERT_EQ(scores.size(), 2);
  EXPECT_EQ(scores[0].at("text"), "Il pleut.");
  EXPECT_EQ(scores[1].at("tokens"), json::array({300, 301}));
  EXPECT_EQ(scores[1].at("ranks").as_array().size(), 2);
  EXPECT_THAT(std::string(lines[1].at("error").as_string()),
              HasSubstr("continuations must not be empty"));
  EXPECT_EQ(lines[2].at("scores").as_array().size(), 2);
  EXPECT_THAT(std::string(lines[3].at("error").as_string()),
              HasSubstr("unknown field \"beams\""));
}

TEST(ScoreTest, WrongUseIsTold) {
  EXPECT_EQ(Score({"Only a prompt"}).exit_code, 2);
  EXPECT_THAT(Score({"Only a prompt"}).err,
              HasSubstr("continuations must follow the prompt"));
  EXPECT_THAT(Score({"a", "b", "--input", "-"}).err,
              HasSubstr("--input and texts are two inputs"));
}

}  // namespace
}  // namespace espalier::testing
