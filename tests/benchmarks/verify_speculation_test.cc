// The verify_speculation program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

ProgramRun Verify(const std::string& input,
                  std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-m", ModelDirectory("en-fr"), "-"});
  return RunProgram(ESPALIER_VERIFY_SPECULATION, options, input);
}

std::vector<std::string> WithDraftModel(std::vector<std::string> options = {}) {
  options.insert(options.begin(),
                 {"--draft-model", ModelDirectory("en-fr-draft")});
  return options;
}

TEST(VerifySpeculationTest, SpeculationIsEqualAndToldOf) {
  const ProgramRun run = Verify(
      R"({"prompt": "It rains."})"
      "\n\n"
      R"({"prompt": "Where is the station?",)"
      R"( "params": {"do_sample": true, "n": 3}})"
      "\n"
      R"({"prompt": "How old are you?",)"
      R"( "params": {"do_sample": true, "n": 50,)"
      R"( "speculate": "draft:3:rejection"}})"
      "\n"
      R"({"prompt": "Yes.", "params": {"speculate": false}})"
      "\n"
      R"({"prompt": "No.", "params": {"num_beams": 2, "do_sample": true}})",
      WithDraftModel({"--samples", "100", "--rounds", "1"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err,
            "verify_speculation: 3 requests, 4 runs each; 1 of them in mode "
            "rejection, "
            "200 samples each besides (2 x --samples)\n");
  EXPECT_THAT(run.out, AllOf(HasSubstr("2 requests, 4 hypotheses: all equal\n"),
                             HasSubstr("as distributions, rejection: "
                                       "1 request"),
                             HasSubstr("  line 4: p ")));
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("of 100 samples with and without\n"),
                    HasSubstr("left out: 2 requests\n"
                              "  line 5: its speculate is off\n"
                              "  line 6: a beam search with do_sample, "
                              "stochastic or num_beam_groups never "
                              "speculates\n")));
  EXPECT_THAT(
      run.out,
      AllOf(HasSubstr("drafts were verified in 3 of 3 requests\n"),
            HasSubstr("compared, with drafts in every step: drafted "),
            HasSubstr(" with drafts as they pay: drafted "),
            HasSubstr(" tokens per step of a sequence\n"), HasSubstr("place "),
            HasSubstr("medians of 1 run each"), HasSubstr("verdict: equal\n")));
}

TEST(VerifySpeculationTest, WithoutADraftModelHistoryDrafts) {
  const ProgramRun run = Verify(R"({"prompt": "No, no, no, no, no."})",
                                {"--rounds", "1", "--speculate", "suffix:3"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "verify_speculation: 1 request, 4 runs each\n");
  EXPECT_THAT(run.out, HasSubstr("1 request, 1 hypothesis: all equal"));
  const ProgramRun by_default =
      Verify(R"({"prompt": "No, no, no, no, no."})", {"--rounds", "1"});
  EXPECT_EQ(by_default.exit_code, 0) << by_default.err;
}

// With a deadline the result depends on the clock, so requests run without
// theirs.
TEST(VerifySpeculationTest, DeadlinesAreLeftOut) {
  const ProgramRun run =
      Verify(R"({"prompt": "No, no, no, no, no.", "params": {"deadline_ms": 1,)"
             R"( "max_new_tokens": 60, "ignore_eos": true}})",
             {"--rounds", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("1 request, 1 hypothesis: all equal"));
}

TEST(VerifySpeculationTest, WithoutADraftNothingIsShown) {
  // The step of the prompt gives all there is.
  const ProgramRun run =
      Verify(R"({"prompt": "Yes.", "params": {"max_new_tokens": 1}})",
             {"--rounds", "1"});
  EXPECT_EQ(run.exit_code, 3) << run.err;
  EXPECT_THAT(run.out, HasSubstr("drafts were verified in 0 of 1 request\n"));
  EXPECT_THAT(run.out, HasSubstr("verdict: none: no draft was verified"));
}

// Together they would leave a step no room for drafts.
TEST(VerifySpeculationTest, ManyRequestsLeaveRoomForTheirDrafts) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines +=
        R"({"prompt": "Where is the station?", "params": {"do_sample": true,)"
        R"( "n": 3}})"
        "\n";
  }
  const ProgramRun run = Verify(lines, WithDraftModel({"--rounds", "1"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("drafts were verified in 40 of 40 requests\n"),
                    HasSubstr("verdict: equal\n")));
}

// From as many beams drafts never pay, and are off but for the comparison.
TEST(VerifySpeculationTest, WhatDoesNotPayIsComparedAllTheSame) {
  const ProgramRun run = Verify(
      R"({"prompt": "Where is the station?", "params": {"num_beams": 24}})",
      WithDraftModel({"--rounds", "1"}));
  EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
  EXPECT_THAT(run.out, HasSubstr("drafts were verified in 1 of 1 request\n"));
  EXPECT_THAT(run.out,
              AnyOf(HasSubstr("as they pay: drafted 0 tokens"),
                    HasSubstr("as they pay: no step verified drafts")));
}

// Both runs take the model's defaults.
TEST(VerifySpeculationTest, DefaultsOfTheModelAreTaken) {
  const ScratchDirectory model;
  LinkFiles(ModelDirectory("en-fr"), model);
  model.Write("generation_config.json",
              R"({"do_sample": true, "temperature": 0.5})");
  const ProgramRun run = RunProgram(ESPALIER_VERIFY_SPECULATION,
                                    {"-m", model.path(), "-", "--rounds", "1"},
                                    R"({"prompt": "It rains.", "params": {}})");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

// An encoder model refuses a draft model.
TEST(VerifySpeculationTest, NoDraftModelIsAdvisedBesideAnEncoder) {
  const auto verify = [](std::vector<std::string> options) {
    options.insert(options.begin(),
                   {"-m", ModelDirectory("en-fr-marian"), "-"});
    return RunProgram(ESPALIER_VERIFY_SPECULATION, options,
                      R"({"prompt": "Yes.", "params": {"max_new_tokens": 1}})");
  };
  const ProgramRun refused = verify({"--speculate", "draft"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err,
            "verify_speculation: --speculate draft needs a draft model, and a "
            "model with an "
            "encoder takes none: ngram and suffix need none\n");
  const ProgramRun nothing = verify({"--rounds", "1"});
  EXPECT_EQ(nothing.exit_code, 3) << nothing.err;
  EXPECT_THAT(nothing.out, AllOf(HasSubstr("repeat themselves"),
                                 Not(HasSubstr("--draft-model"))));
}

TEST(VerifySpeculationTest, WhatIsWrongIsOneError) {
  constexpr char kGood[] = R"({"prompt": "Yes."})";
  const struct {
    std::string input;
    std::vector<std::string> options;
    const char* error;
  } cases[] = {
      {"", {}, "verify_speculation: stdin has no request\n"},
      {R"({"prompt": "Yes.", "params": {"speculate": false}})",
       {},
       "stdin has no request that speculates: line 1: its speculate is off"},
      {std::string(kGood) + "\n" +
           R"({"prompt": "Yes.", "params": {"num_beams": 0}})",
       {},
       "stdin, line 2: num_beams must be at least 1, got 0"},
      {R"({"prompt": "Yes.", "params": {"speculate": "draft"}})",
       {},
       "stdin, line 1: speculate.method must be \"ngram\", \"suffix\", "
       "\"constraint\" or "
       "\"off\" without a draft model, got \"draft\""},
      {kGood,
       {"--speculate", "draft"},
       "--speculate draft needs a draft model: add --draft-model DIR\n"},
      {kGood,
       {"--speculate", "draft:3:rejection"},
       "--speculate draft:3:rejection needs a draft model: add "},
      {kGood,
       {"--speculate", "off"},
       "--speculate must be a way to speculate, METHOD[:N[:MODE]], got "
       "\"off\""},
      {kGood,
       {"--speculate", "ngram:33"},
       "--speculate: num_tokens must be in [1, 32], got 33"},
      {kGood,
       {"--speculate", "ngram:0"},
       "--speculate: num_tokens must be in [1, 32], got 0"},
      {kGood,
       {"--speculate", "guess"},
       "must be \"ngram\", \"suffix\", \"constraint\", \"draft\" or \"off\", "
       "got \"guess\""},
      {kGood, {"--samples", "1"}, "--samples: Value 1 not in range"},
  };
  for (const auto& c : cases) {
    const ProgramRun run = Verify(c.input, c.options);
    EXPECT_EQ(run.exit_code, 2) << c.error;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(c.error));
    EXPECT_EQ(SplitLines(run.err).size(),
              c.options.size() == 2 && c.options[0] == "--samples" ? 2u : 1u)
        << run.err;
  }
}

// A line that is cut at the limit may be a request all the same.
TEST(VerifySpeculationTest, ALineThatIsTooLongIsRefused) {
  std::string line = R"({"prompt": "Yes."})";
  line.resize((16 << 20) + 1, ' ');
  const ProgramRun run = Verify(line + "more\n", {});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err,
            "verify_speculation: stdin, line 1: a line may have 16777216 "
            "bytes, this one "
            "has more\n");
}

// Its times vary, so documents do not show its output.
TEST(VerifySpeculationTest, RunsAsDocumentsHaveIt) {
  const ScratchDirectory scratch;
  std::filesystem::create_symlink(SourcePath("models"), scratch.path("models"));
  std::filesystem::create_directories(scratch.path("build/release/bin"));
  std::filesystem::create_symlink(
      ESPALIER_VERIFY_SPECULATION,
      scratch.path("build/release/bin/verify_speculation"));
  for (const char* document : {"README.md", "docs/speculation.md"}) {
    SCOPED_TRACE(document);
    const std::string text = ReadText(SourcePath(document));
    const size_t begin = text.find("```\ncat > requests.jsonl <<END\n");
    ASSERT_NE(begin, text.npos);
    const size_t first = begin + 4;
    std::string command = text.substr(first, text.find("```", first) - first);
    command.insert(command.find(" -m "), " --samples 100 --rounds 1");
    const ProgramRun run = RunProgram(
        "/bin/sh", {"-c", "cd '" + scratch.path() + "' && " + command}, "");
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("drafts were verified in 2 of 2 requests"));
    EXPECT_THAT(run.out, HasSubstr("verdict: equal\n"));
  }
}

TEST(VerifySpeculationTest, ItsHelpSaysWhatItSees) {
  const ProgramRun run =
      RunProgram(ESPALIER_VERIFY_SPECULATION, {"--help"}, "");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("permutation test"), HasSubstr("it does not see"),
                    HasSubstr("Exit code: 0 if the verdict is"),
                    HasSubstr("3 if nothing was shown"),
                    HasSubstr("4,000 runs unless --samples says"),
                    HasSubstr("100; default 2000"), HasSubstr("at least 100"),
                    HasSubstr("of CPU time with models/en-fr")));
}

}  // namespace
}  // namespace espalier::testing
