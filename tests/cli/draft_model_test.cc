// Speculation, its default and its figures, as users of the program meet them;
// and combinations of options that mean little.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const char kText[] = "It rains a lot in the city where I live.";

std::vector<std::string> With(const char* command, bool has_draft_model,
                              std::vector<std::string> options) {
  options.insert(options.begin(), {command, "-m", ModelDirectory("en-fr")});
  if (has_draft_model) {
    options.insert(options.end(),
                   {"--draft-model", ModelDirectory("en-fr-draft")});
  }
  return options;
}

int64_t Drafted(const json::value& line) {
  const json::value* const drafted =
      line.at("usage").as_object().if_contains("drafted_tokens");
  return drafted == nullptr ? 0 : drafted->to_number<int64_t>();
}

TEST(SpeculateOptionTest, RequestsOfABatchThatDoNotSaySpeculateSo) {
  const std::string text = std::string(R"({"prompt": ")") + kText + "\"";
  const std::string lines = text + "}\n" + text +
                            R"(, "params": {"speculate": false}})"
                            "\n" +
                            text +
                            R"(, "params": {"speculate": "off"}})"
                            "\n" +
                            text +
                            R"(, "params": {"num_beams": 4, "do_sample": true,)"
                            R"( "seed": 1}})"
                            "\n" +
                            text + R"(, "params": {"num_beams": 3}})";
  const ProgramRun plain =
      RunEspalier(With("batch", true, {"--speculate", "off"}), lines);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const ProgramRun run = RunEspalier(
      With("batch", true, {"--speculate", "draft:3", "--max-running", "1"}),
      lines);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto without = ParseLines(plain.out);
  const auto with = ParseLines(run.out);
  ASSERT_EQ(with.size(), 5u);
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_EQ(with[i].at("hypotheses"), without[i].at("hypotheses"));
    EXPECT_EQ(Drafted(without[i]), 0);
    // The last one may, if the steps before have shown that it pays.
    if (i < 4) {
      EXPECT_EQ(Drafted(with[i]) > 0, i == 0) << i;
    }
  }
}

// It is there for nothing else; requests, and the program, may say no.
TEST(SpeculateOptionTest, ADraftModelDraftsUnlessItIsToldNotTo) {
  const std::string text = std::string(R"({"prompt": ")") + kText + "\"";
  const std::string lines = text +
                            R"(, "params": {"speculate": null}})"
                            "\n" +
                            text + R"(, "params": {"speculate": "off"}})";
  const auto drafted = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--max-running", "1"});
    const ProgramRun run = RunEspalier(With("batch", true, options), lines);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const auto answers = ParseLines(run.out);
    return std::pair(Drafted(answers.at(0)) > 0, Drafted(answers.at(1)) > 0);
  };
  EXPECT_EQ(drafted({}), std::pair(true, false));
  EXPECT_EQ(drafted({"--speculate", "off"}), std::pair(false, false));
  const ProgramRun run =
      RunEspalier(With("generate", true, {"--figures", kText}));
  EXPECT_THAT(run.err, HasSubstr("drafted "));
}

TEST(SpeculateOptionTest, WhatIsWrongWithItIsOneErrorBeforeAnythingRuns) {
  const std::pair<const char*, const char*> cases[] = {
      {"foo",
       "--speculate: method must be \"ngram\", \"suffix\", \"constraint\", "
       "\"draft\" or "
       "\"off\", "
       "got \"foo\""},
      {"none", "\"draft\" or \"off\", got \"none\""},
      {"off:5",
       "--speculate: num_tokens must be left out with method \"off\", got 5"},
      {"ngram:0", "--speculate: num_tokens must be in [1, 32], got 0"},
      {"ngram:33", "--speculate: num_tokens must be in [1, 32], got 33"},
      {"ngram:1.5", "--speculate: num_tokens must be an integer, got \"1.5\""},
      {"ngram:1e99", "--speculate: num_tokens must be an integer"},
      {"ngram:\"3\"", "--speculate: num_tokens must be an integer"},
      {"ngram:3:exact",
       "--speculate: mode must be \"rejection\" or \"coupled\""},
      {"\xff", "--speculate is not UTF-8"},
      {"draft",
       "--speculate: method must be \"ngram\", \"suffix\", \"constraint\" or "
       "\"off\" without "
       "--draft-model, got \"draft\""}};
  for (const auto& [value, message] : cases) {
    const ProgramRun run = RunEspalier(
        With("batch", false, {"--speculate", value}), "{\"prompt\": \"Go.\"}");
    EXPECT_EQ(run.exit_code, 2) << value;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, AllOf(StartsWith("espalier: "), HasSubstr(message)));
    EXPECT_EQ(SplitLines(run.err).size(), 1u) << run.err;
  }
}

TEST(SpeculateOptionTest, FiguresSayWhatDraftsWereWorth) {
  const ProgramRun run = RunEspalier(
      With("generate", true, {"--speculate", "draft", "--figures", kText}));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.err, ::testing::ContainsRegex(
                           "drafted [0-9]+ tokens?, accepted [0-9]+ "
                           "\\([0-9.]+%\\), [0-9.]+ tokens per step of a "
                           "sequence; [0-9]+ steps? of the draft model "
                           "alone\n"));
  const ProgramRun plain = RunEspalier(
      With("generate", true, {"--speculate", "off", "--figures", kText}));
  EXPECT_THAT(plain.err, Not(HasSubstr("drafted")));
  EXPECT_THAT(plain.err, Not(HasSubstr("draft model")));
  EXPECT_EQ(plain.out, run.out);
}

// Accepted drafts save steps of the model. In int8 the draft model is the model
// itself; with stored weights it would differ.
TEST(SpeculateOptionTest, StepsAreThoseOfTheModel) {
  const auto steps = [](const ProgramRun& run) {
    const size_t end = run.err.find(" steps: ");
    const size_t begin = run.err.rfind('\n', end) + 1;
    return std::stoi(run.err.substr(begin, end - begin));
  };
  const ProgramRun same =
      RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "--draft-model",
                   ModelDirectory("en-fr"), "--weights", "int8", "--speculate",
                   "draft", "--figures", kText});
  const ProgramRun plain = RunEspalier(
      With("generate", false, {"--weights", "int8", "--figures", kText}));
  EXPECT_EQ(plain.out, same.out);
  EXPECT_LT(steps(same), steps(plain));
  EXPECT_THAT(same.err, HasSubstr("(100.0%)"));
}

TEST(SpeculateOptionTest, OddCombinationsRun) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{
           {"--num-beams", "4", "--speculate", "draft:32"},
           {"--num-beams", "4", "--speculate", "draft:32:rejection"},
           {"--do-sample", "-n", "5", "--seed", "3", "--speculate", "draft:32"},
           {"--do-sample", "-n", "2", "--best-of", "5", "--seed", "3",
            "--speculate", "draft:8:rejection"},
           {"--speculate", "draft", "--max-new-tokens", "1"},
           {"--speculate", "draft", "--max-step-tokens", "1"},
           {"--speculate", "draft", "--page-size", "1"},
           {"--speculate", "draft", "--deadline-ms", "2147483647"},
           {"--speculate", "suffix:32", "--stop", "ville", "--num-beams", "3"},
           {"--num-beams", "4", "--speculate", "ngram:32:rejection"}}) {
    const bool has_draft_model = std::ranges::any_of(
        options, [](const std::string& o) { return o.starts_with("draft"); });
    std::vector<std::string> args = options;
    args.push_back(kText);
    const ProgramRun run = RunEspalier(With("generate", has_draft_model, args));
    EXPECT_EQ(run.exit_code, 0) << options[0] << ": " << run.err;
    const bool is_idle =
        options[0] == "--num-beams" && options[3].ends_with(":rejection");
    if (is_idle) {
      EXPECT_THAT(run.err, HasSubstr("mode rejection of"));
    } else {
      EXPECT_EQ(run.err, "");
    }
  }
}

// Its trace file can be drawn.
TEST(SpeculateOptionTest, SamplesThatSpeculateCanBeTraced) {
  const ScratchDirectory scratch;
  const std::string trace = scratch.path("trace");
  for (const char* how : {"draft", "draft:8:rejection", "suffix"}) {
    const ProgramRun run =
        RunEspalier(With("generate", true,
                         {"--do-sample", "-n", "4", "--seed", "3",
                          "--speculate", how, "--trace", trace, kText}));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    for (const char* format : {"text", "svg", "html", "dot"}) {
      const ProgramRun drawn = RunEspalier({"trace", trace, "--to", format});
      EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
    }
  }
}

TEST(DraftModelOptionTest, WhatDoesNotFitIsRefusedNamingTheOption) {
  const ScratchDirectory scratch;
  const std::string copy = scratch.path("draft");
  std::filesystem::copy(ModelDirectory("en-fr-draft"), copy);
  std::string pieces = ReadText(copy + "/tokenizer.model");
  const std::string from = "maison", to = "maisoq";
  pieces.replace(pieces.find(from), from.size(), to);
  scratch.Write("draft/tokenizer.model", pieces);
  const std::string file = scratch.Write("file", "");
  const std::string empty = scratch.path("empty");
  std::filesystem::create_directory(empty);
  const std::string half = scratch.path("half");
  std::filesystem::copy(ModelDirectory("en-fr-draft"), half);
  std::filesystem::remove(half + "/model.safetensors");
  const std::pair<std::string, std::string> cases[] = {
      {copy, "--draft-model: " + copy + " must have the vocabulary of "},
      {copy, "maisoq"},
      {"/no/such", "--draft-model: no such directory: /no/such"},
      {file, "--draft-model: " + file + " is a file"},
      {empty, "--draft-model: " + empty + " has no config.json"},
      {half, "--draft-model: " + half + " has neither model.safetensors"}};
  for (const auto& [directory, message] : cases) {
    const ProgramRun run = RunEspalier(
        With("generate", false, {"--draft-model", directory, "Go."}));
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(SplitLines(run.err).size(), 1u) << run.err;
  }
}

// Requests of a batch may choose for themselves.
TEST(DraftModelOptionTest, ADraftModelThatDraftsForNoTextHasAWarning) {
  const auto warning = [](const char* command,
                          std::vector<std::string> options) {
    const ProgramRun run =
        RunEspalier(With(command, true, std::move(options)), "Go.");
    return run.err;
  };
  const std::string idle = "espalier: warning: --draft-model has no effect";
  EXPECT_EQ(warning("generate", {"--speculate", "off"}),
            idle + " with --speculate off\n");
  EXPECT_EQ(warning("generate", {"--speculate", "ngram:2"}),
            idle + " with --speculate ngram\n");
  EXPECT_EQ(warning("generate", {"--num-beams", "2", "--do-sample"}),
            idle + ": beams that are drawn, or in groups, have no drafts\n");
  EXPECT_EQ(warning("generate", {}), "");
  EXPECT_EQ(warning("batch", {"--speculate", "off"}), "");
}

// Not that its vocabulary is another one, which it is, too.
TEST(DraftModelOptionTest, AnEncoderIsTheFirstReason) {
  const struct {
    const char* model;
    const char* draft;
    const char* message;
  } cases[] = {
      {"en-fr-marian", "en-fr",
       "espalier: --draft-model must be unset for a model with an encoder, got "
       "DRAFT: a "},
      {"en-fr", "en-fr-marian",
       "espalier: --draft-model must name a model without an encoder, got "
       "DRAFT\n"}};
  for (const auto& [model, draft, message] : cases) {
    const ProgramRun run =
        RunEspalier({"generate", "-m", ModelDirectory(model), "--draft-model",
                     ModelDirectory(draft), "Go."});
    EXPECT_EQ(run.exit_code, 2);
    std::string expected = message;
    expected.replace(expected.find("DRAFT"), 5, ModelDirectory(draft));
    EXPECT_THAT(run.err, StartsWith(expected));
  }
}

}  // namespace
}  // namespace espalier::testing
