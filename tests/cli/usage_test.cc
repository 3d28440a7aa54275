// What espalier says to a command line that it does not understand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(UsageTest, WhatWasProbablyMeantIsNamed) {
  const struct {
    std::vector<std::string> args;
    const char* message;
  } cases[] = {
      {{}, "a command is needed. The commands are generate, batch and trace."},
      {{"genrate", "It rains."},
       "no command \"genrate\"; did you mean generate? The commands are"},
      {{"translate"},
       "no command \"translate\". The commands are generate, batch and trace."},
      {{"--versoin"},
       "no option --versoin before the command; did you mean --version?"},
      {{"--model", "x", "generate"}, "no option --model before the command"},
      {{"generate", "--modle", "x"}, "did you mean --model?"},
      {{"generate", "--num_beams=4"},
       "generate has no option --num_beams; did you mean --num-beams?"},
      {{"generate", "--beams", "4"}, "did you mean --num-beams?"},
      {{"generate", "--temp", "4"}, "did you mean --temperature?"},
      {{"generate", "--n-predict", "4"}, "did you mean --max-new-tokens?"},
      {{"generate", "-p", "No."}, "texts are arguments without an option"},
      {{"generate", "--input", "x"}, "it is an option of batch"},
      {{"generate", "--quantum", "x"}, "generate has no option --quantum\n"},
      {{"batch", "--num-beams", "4"},
       "batch has no option --num-beams; each request has its own, "
       "\"params\": {\"num_beams\": ...}"},
      {{"batch", "-n", "4"}, "\"params\": {\"n\": ...}"},
      {{"batch", "in.jsonl"}, "a file of requests is --input in.jsonl"},
      {{"generate", "No."}, "generate: --model is required"},
      {{"generate", "-m"}, "generate: --model needs a value"},
      {{"batch", "-m", "a", "-m", "b"}, "--model is given more than once"},
      {{"trace", "a", "b"}, "trace has no use for \"b\""},
      {{"trace", "a", "--request", "b"}, "not a number: --request = b"},
  };
  for (const auto& [args, message] : cases) {
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, StartsWith("espalier: "));
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_THAT(run.err, HasSubstr("--help says more."));
  }
}

TEST(UsageTest, WhatIsNoModelIsSaidToBeNone) {
  const ScratchDirectory scratch;
  const auto run = [](const std::string& model) {
    return RunEspalier({"generate", "-m", model, "It rains."}).err;
  };
  EXPECT_THAT(run("/nowhere"), HasSubstr("no such directory: /nowhere"));
  EXPECT_THAT(run(scratch.Write("m.gguf", "")),
              HasSubstr("m.gguf is a file; a model is a directory with"));
  EXPECT_THAT(run(scratch.path()), HasSubstr(" has no config.json; a model"));
}

TEST(UsageTest, HelpFitsATerminal) {
  for (const char* command : {"generate", "batch", "trace"}) {
    const ProgramRun help = RunEspalier({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    for (const std::string& line : SplitLines(help.out)) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

}  // namespace
}  // namespace espalier::testing
