// espalier score: a table of continuations, and JSON lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/scratch_directory.h"

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
  EXPECT_THAT(run.err, HasSubstr("espalier: stdin:3: continuations must not"));
  EXPECT_THAT(run.err, HasSubstr("espalier: stdin:5: unknown field"));
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

TEST(ScoreTest, TablesOfLinesHaveHeadingsAndErrorsAreOnStderr) {
  const ProgramRun run = Score(
      {},
      R"({"id": "a", "prompt": "It rains.", "continuations": [[5], [300, 301]]})"
      "\n\n{}\n"
      R"({"prompt_tokens": [1, 4, 5], "continuations": ["b"]})"
      "\n");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err,
            "espalier: stdin:3: prompt or prompt_tokens must be there, one of "
            "the two, got none\n");
  const std::vector<std::string> lines = SplitLines(run.out);
  ASSERT_EQ(lines.size(), 7) << run.out;
  EXPECT_EQ(lines[0], "\"a\": \"It rains.\"");
  // A token that spells nothing is shown by its id.
  EXPECT_THAT(lines[2] + lines[3], HasSubstr("  no  [5]"));
  EXPECT_EQ(lines[4], "2: [1, 4, 5]");
  EXPECT_THAT(lines[6], HasSubstr("\"b\""));
}

TEST(ScoreTest, InputWithoutLinesHasANote) {
  for (const char* input : {"", "\n \n"}) {
    const ProgramRun run = Score({}, input);
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, "espalier: note: no lines in stdin\n");
  }
  const ProgramRun run = Score({"--input", "/nowhere/in"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--input: cannot read /nowhere/in: No such"));
}

TEST(ScoreTest, TokensWithoutATextHaveNone) {
  const ProgramRun run = Score(
      {"--json"}, R"({"prompt": "It rains.", "continuations": [[5], [300]]})"
                  "\n");
  const json::array scores = ParseLines(run.out).at(0).at("scores").as_array();
  EXPECT_FALSE(scores[0].as_object().contains("text"));
  EXPECT_TRUE(scores[1].as_object().contains("text"));
}

TEST(ScoreTest, TheLastOfAFieldCounts) {
  const ProgramRun run =
      Score({"--json"},
            R"({"prompt": "a", "continuations": ["a"], "continuations": ["b"]})"
            "\n");
  const json::array scores = ParseLines(run.out).at(0).at("scores").as_array();
  ASSERT_EQ(scores.size(), 1);
  EXPECT_EQ(scores[0].at("text"), "b");
}

TEST(ScoreTest, AnOverlongLineIsAnErrorOfItsOwn) {
  const std::string good = R"({"prompt": "a", "continuations": ["b"]})";
  const ProgramRun run =
      Score({"--json"}, good + "\n" + std::string((16 << 20) + 1, 'x') + "\n" +
                            good + "\n");
  EXPECT_EQ(run.exit_code, 1);
  const std::string error = "a line may have 16777216 bytes, this one has more";
  EXPECT_EQ(run.err, "espalier: stdin:2: " + error + "\n");
  const std::vector<json::value> lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines[1].at("error"), json::value(error));
  EXPECT_EQ(lines[2].at("scores"), lines[0].at("scores"));
}

TEST(ScoreTest, RawAndTemplatesExcludeEachOther) {
  const std::string rest = R"(, "continuations": ["b"]})";
  const ProgramRun run =
      Score({"--json"},
            R"({"prompt": "a", "raw": true, "template": "en-fr")" + rest +
                "\n" + R"({"prompt_tokens": [1], "raw": true)" + rest + "\n" +
                R"({"prompt_tokens": [1], "template": "en-fr")" + rest + "\n" +
                R"({"prompt": "a", "template": "nosuch")" + rest + "\n");
  const std::vector<json::value> lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0].at("error"),
            "raw must be false with a template, got true and \"en-fr\"");
  EXPECT_EQ(lines[1].at("error"),
            "raw needs a prompt that is text, got prompt_tokens");
  EXPECT_EQ(lines[2].at("error"),
            "template needs a prompt that is text, got prompt_tokens");
  EXPECT_THAT(std::string(lines[3].at("error").as_string()),
              HasSubstr("no prompt template \"nosuch\""));
  const ProgramRun options = Score({"a", "b", "--raw", "--template", "nosuch"});
  EXPECT_EQ(options.exit_code, 2);
  EXPECT_THAT(options.err, HasSubstr("--raw and --template exclude each other, "
                                     "got --template \"nosuch\""));
  // A line's own replaces an option.
  const std::string own = R"({"prompt": "a", "template": "fr-en")" + rest;
  EXPECT_EQ(Score({"--json", "--raw"}, own).out, Score({"--json"}, own).out);
  const std::string raw = R"({"prompt": "a", "raw": true)" + rest;
  EXPECT_EQ(Score({"--json", "--template", "fr-en"}, raw).out,
            Score({"--json"}, raw).out);
}

TEST(ScoreTest, AFileOfLinesHasTheNamesOfOtherCommands) {
  const std::string lines = R"({"prompt": "a", "continuations": ["b"]})"
                            "\n";
  const std::string expected = Score({"--json"}, lines).out;
  ScratchDirectory scratch;
  const std::string path = scratch.Write("in", lines);
  for (const char* option : {"-f", "--file", "-i", "--input"}) {
    const ProgramRun run = Score({"--json", option, path});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out, expected) << option;
  }
}

TEST(ScoreTest, WrongUseIsTold) {
  EXPECT_EQ(Score({"Only a prompt"}).exit_code, 2);
  EXPECT_THAT(Score({"Only a prompt"}).err,
              HasSubstr("continuations must follow the prompt"));
  EXPECT_THAT(Score({"a", "b", "--input", "-"}).err,
              HasSubstr("--input and texts are two inputs"));
  EXPECT_THAT(Score({"a", "b", "-i", "-"}).err,
              HasSubstr("espalier: -i and texts are two inputs"));
  EXPECT_THAT(Score({"-i", "/nowhere"}).err,
              HasSubstr("espalier: -i: cannot read /nowhere"));
  EXPECT_THAT(Score({"-f", "/nowhere"}).err,
              HasSubstr("espalier: -f: cannot read /nowhere"));
}

}  // namespace
}  // namespace espalier::testing
