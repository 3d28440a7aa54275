// `espalier generate` as its users meet it, and the embedding example.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "request/param_fields.h"
#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;

ProgramRun Generate(std::vector<std::string> args,
                    const std::string& input = "") {
  args.insert(args.begin(), {"generate", "-m", ModelDirectory("en-fr")});
  return RunEspalier(args, input);
}

TEST(GenerateTest, PrintsTheHypothesesBestFirst) {
  const ProgramRun run = Generate({"--num-beams", "5", "--num-return-sequences",
                                   "3", "Where is the station?"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::vector<std::string> lines = SplitLines(run.out);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_EQ(lines[0], "Where is the station?");
  double last = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], MatchesRegex(" +-[0-9]+\\.[0-9]{4}  .+"));
    const double score = std::stod(lines[i]);
    EXPECT_LE(score, last);
    last = score;
  }
  EXPECT_THAT(lines[1], HasSubstr("gare"));
  EXPECT_EQ(run.err, "");
}

// --regex and --choice are short for --constraint, and named in errors.
TEST(GenerateTest, TextsAreInALanguage) {
  const ProgramRun digits =
      Generate({"--regex", "[0-9]{3}", "--max-new-tokens", "9", "It rains."});
  EXPECT_EQ(digits.exit_code, 0) << digits.err;
  EXPECT_THAT(digits.out, MatchesRegex("It rains.\n +-[0-9.]+  [0-9]{3}\n"));
  // Each --choice takes one text, whatever it looks like.
  const ProgramRun delayed = Generate({"--choice", "7", "--start-after", "[,",
                                       "--max-new-tokens", "12", "It rains."});
  EXPECT_EQ(delayed.exit_code, 0) << delayed.err;
  EXPECT_THAT(delayed.out, ::testing::EndsWith("[,7\n"));
  const ProgramRun choice = Generate({"--choice", "[a, b]", "It rains."});
  EXPECT_EQ(choice.exit_code, 0) << choice.err;
  EXPECT_THAT(choice.out, HasSubstr("  [a, b]\n"));
  EXPECT_THAT(
      Generate({"--choice", "Oui.", "--choice", "Il pleut.", "It rains."}).out,
      HasSubstr("  Il pleut.\n"));
  const ProgramRun words =
      Generate({"--must-contain", "hier", "--must-contain", "le soir",
                "--num-beams", "3", "--max-new-tokens", "24", "It rains."});
  EXPECT_EQ(words.exit_code, 0) << words.err;
  EXPECT_THAT(words.out,
              ::testing::AllOf(HasSubstr("hier"), HasSubstr("le soir")));
  const ProgramRun both =
      Generate({"--must-contain", "2", "--regex", "[0-9]{3}",
                "--max-new-tokens", "9", "It rains."});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, MatchesRegex("It rains.\n +-[0-9.]+  [0-9]*2[0-9]*\n"));
  EXPECT_THAT(Generate({"--must-contain", "a", "--regex", "b+", "No."}).err,
              HasSubstr("--must-contain: no text of the language contains all "
                        "words"));
  EXPECT_THAT(Generate({"--regex", "(b", "--must-contain", "b", "No."}).err,
              HasSubstr("\"No.\": --regex: at byte 0: the group"));
  const std::string group = R"({"regex": "(b"})";
  EXPECT_THAT(
      Generate({"--constraint", group, "--must-contain", "b", "No."}).err,
      HasSubstr("\"No.\": --constraint: regex: at byte 0: the group"));
  EXPECT_THAT(Generate({"--constraint", R"({"regex": "b+"})", "--must-contain",
                        "a", "No."})
                  .err,
              HasSubstr("--must-contain: no text of the language contains"));
  EXPECT_THAT(Generate({"--constraint", R"({"choice": ["Non."]})", "No."}).out,
              HasSubstr("  Non.\n"));
  EXPECT_THAT(Generate({"--regex", "a(?=b)", "No."}).err,
              HasSubstr("--regex: at byte 1: look-ahead"));
  EXPECT_THAT(
      Generate({"--regex", "a", "--allowed-token-ids", "7", "No."}).err,
      HasSubstr("--allowed-token-ids must be unset with --regex, got 1 id"));
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("schema.json", "5");
  const std::string err = Generate({"--json-schema", file, "No."}).err;
  EXPECT_THAT(err, HasSubstr("--json-schema: " + file +
                             ": a schema must be an object or a "
                             "boolean, got 5"));
  EXPECT_THAT(Generate({"--json-schema", R"({"const": [3]})", "No."}).out,
              HasSubstr("  [3]\n"));
  EXPECT_THAT(Generate({"--json-schema", "{5}", "No."}).err,
              Not(HasSubstr("{5}: ")));
  EXPECT_THAT(Generate({"--grammar", R"(root ::= "Non!")", "No."}).out,
              HasSubstr("  Non!\n"));
  const std::string list =
      scratch.Write("list.json", R"({"const": [1, 2], "type": "array"})");
  EXPECT_THAT(Generate({"--json-schema", list, "--no-spaces", "No."}).out,
              HasSubstr("  [1,2]\n"));
  EXPECT_THAT(
      Generate({"--no-spaces=false", "--json-schema", list, "--regex", "a"})
          .err,
      HasSubstr(R"({"json_schema": {"const": [1, 2], "type": "array"}})"));
  EXPECT_THAT(
      Generate({"--json-schema", list, "--whitespace", "none", "No."}).out,
      HasSubstr("  [1,2]\n"));
  EXPECT_THAT(Generate({"--whitespace", " ", "--json-schema", list, "No."}).out,
              HasSubstr("  [ 1 , 2 ]\n"));
  EXPECT_THAT(
      Generate({"--json-schema", list, "--whitespace", "\\s", "No."}).err,
      HasSubstr("--whitespace must be bounded, none or a regular expression "
                "of white space: a text that it matches has"));
  EXPECT_THAT(Generate({"--whitespace", " ", "--regex", "a", "No."}).err,
              HasSubstr("--whitespace requires --json-schema"));
  EXPECT_THAT(Generate({"--json-schema", list, "--whitespace", " ",
                        "--no-spaces", "No."})
                  .err,
              HasSubstr("--no-spaces excludes --whitespace"));
  EXPECT_THAT(Generate({"--no-spaces", "--regex", "a", "No."}).err,
              HasSubstr("--no-spaces requires --json-schema"));
  EXPECT_EQ(Generate({"--no-spaces=false", "--regex", "a", "No."}).exit_code,
            0);
  EXPECT_THAT(Generate({"--json-schema", list, "--no-spaces=maybe", "No."}).err,
              HasSubstr("--no-spaces must be true or false, got \"maybe\""));
  const std::string nested = scratch.Write(
      "nested.json", R"({"type": "array", "items": {"$ref": "#"}})");
  EXPECT_THAT(
      Generate({"--json-schema", nested, "--must-contain", "[", "No."}).err,
      HasSubstr("\"No.\": --must-contain must be empty with --json-schema that "
                "recurs, got 1 string"));
  const std::string grammar =
      scratch.Write("pairs.gbnf", "root ::= \"(\" root \")\" | \"Oui.\"");
  EXPECT_THAT(Generate({"--grammar", grammar, "It rains."}).out,
              MatchesRegex("It rains.\n +-[0-9.]+  [(]*Oui\\.[)]*\n"));
  EXPECT_THAT(
      Generate({"--grammar", scratch.Write("bad.gbnf", "root ::= a"), "No."})
          .err,
      HasSubstr("--grammar: at line 1, column 10: no rule \"a\" is defined"));
  EXPECT_THAT(Generate({"--regex", "a", "--choice", "b", "No."}).err,
              HasSubstr("--regex and --choice, one option, are given 2 times"));
  EXPECT_THAT(Generate({"--regex", "a", "--regex", "b", "No."}).err,
              HasSubstr("--regex is given more than once"));
}

// A text that was cut off looks complete.
TEST(GenerateTest, TextsThatAreCutOffAreToldOf) {
  const std::vector<std::string> endless = {
      "--ignore-eos", "--num-beams",   "64",  "--max-new-tokens",
      "1000",         "--deadline-ms", "400", "It rains."};
  const ProgramRun late = Generate(endless);
  EXPECT_EQ(late.exit_code, 0);
  EXPECT_EQ(late.err,
            "espalier: 1 of 1 text ended at the deadline, --deadline-ms\n");
  std::vector<std::string> streamed = endless;
  streamed.insert(streamed.begin(), {"--stream", "--figures"});
  const ProgramRun run = Generate(streamed);
  EXPECT_THAT(run.err, HasSubstr("1 of 1 text ended at the deadline"));
  EXPECT_THAT(run.err, HasSubstr("\ncut off: 0 requests at max_new_tokens, 1 "
                                 "at a deadline\n"));
  const ProgramRun length =
      Generate({"--max-new-tokens", "2", "--figures", "It rains.", "Go on."});
  EXPECT_THAT(length.err,
              HasSubstr("\ncut off: 2 requests at max_new_tokens, 0 at a "
                        "deadline\n"));
  EXPECT_THAT(Generate({"--figures", "It rains."}).err,
              Not(HasSubstr("cut off")));
}

TEST(GenerateTest, LanguagesOrATemplatesNameChooseTheDirection) {
  const std::string text = "Il pleut.";
  const ProgramRun run = Generate({"--from", "fr", "--to", "en", text});
  EXPECT_THAT(run.out, HasSubstr("raining"));
  EXPECT_EQ(Generate({"--template", "fr-en", text}).out, run.out);
  EXPECT_NE(Generate({text}).out, run.out);

  const ProgramRun bad = Generate({"--template", "de-en", text});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("de-en"));
  EXPECT_THAT(bad.err, HasSubstr("fr-en"));  // says what there is
  EXPECT_EQ(Generate({"--from", "de", "--to", "en", text}).exit_code, 2);
}

TEST(GenerateTest, ArgumentsFilesAndPipesAreTheSame) {
  const ScratchDirectory scratch;
  const std::string texts = "It rains.\n\nI am hungry.\n";
  const std::string expected = Generate({"It rains.", "I am hungry."}).out;
  EXPECT_THAT(SplitLines(expected), SizeIs(5));  // a blank line between
  EXPECT_EQ(Generate({}, texts).out, expected);
  EXPECT_EQ(Generate({"--file", "-"}, texts).out, expected);
  EXPECT_EQ(Generate({"-"}, texts).out, expected);
  EXPECT_EQ(Generate({"--file", scratch.Write("t", texts)}).out, expected);
  // Each name of the option is that of its errors.
  for (const std::string option : {"--file", "-f", "--input", "-i"}) {
    const ProgramRun missing = Generate({option, "/nowhere"});
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_THAT(missing.err, HasSubstr("espalier: " + option + ": cannot "));
    const ProgramRun both = Generate({option, "-", "It rains."});
    EXPECT_EQ(both.exit_code, 2);
    EXPECT_EQ(both.err, "espalier: give texts or " + option + ", not both\n");
  }
  EXPECT_THAT(Generate({"-", "It rains."}, texts).err,
              HasSubstr("give texts or -, which is the lines of stdin"));
}

TEST(GenerateTest, EveryFieldOfTheFormatIsAnOption) {
  const ProgramRun help = RunEspalier({"generate", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const ParamField& field : ParamFields()) {
    std::string flag = "--" + std::string(field.name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_THAT(help.out, HasSubstr(flag));
  }
  const std::string plain = Generate({"--num-beams", "4", "It rains."}).out;
  EXPECT_NE(
      Generate({"--num-beams", "4", "--length-penalty", "-2", "It rains."}).out,
      plain);
  EXPECT_EQ(
      Generate({"--num-beams", "4", "--early-stopping", "never",
                "--eos-token-id", "[2]", "--bad-words-ids", "[]", "It rains."})
          .exit_code,
      0);
  const ProgramRun bad = Generate({"--early-stopping", "soon", "It rains."});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--early-stopping must be true, false"));
}

TEST(GenerateTest, OptionsWithoutEffectHaveAWarning) {
  const auto warning = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"--seed", "1"});
    args.push_back("It rains.");
    const ProgramRun run = Generate(args);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.err;
  };
  const std::string one =
      " has no effect with one beam; --num-beams 2 or more gives it one\n";
  EXPECT_EQ(warning({"--length-penalty", "2"}),
            "espalier: warning: --length-penalty" + one);
  EXPECT_EQ(warning({"--num-beams", "1", "--length-penalty-form", "wu"}),
            "espalier: warning: --length-penalty-form" + one);
  EXPECT_EQ(warning({"--do-sample", "-n", "2", "--early-stopping", "never"}),
            "espalier: warning: --early-stopping" + one);
  EXPECT_EQ(warning({"--patience", "2", "--early-stopping", "true",
                     "--length-penalty", "0"}),
            "espalier: warning: --length-penalty, --early-stopping and "
            "--patience have no effect with one beam; --num-beams 2 or more "
            "gives them one\n");
  EXPECT_EQ(warning({"--renormalize-logits"}), "");  // changes the score
  EXPECT_EQ(warning({"--num-beams", "4", "--num-beam-groups", "2"}),
            "espalier: warning: without --diversity-penalty all 2 groups of "
            "--num-beam-groups find the same beams\n");
  EXPECT_EQ(warning({"--num-beams", "4", "--num-beam-groups", "2",
                     "--diversity-penalty", "0.5"}),
            "");
  EXPECT_EQ(warning({"--do-sample", "--temperature", "0", "--top-k", "3"}),
            "espalier: warning: --top-k has no effect with --temperature 0\n");
  EXPECT_EQ(warning({"--do-sample", "--top-k", "3"}), "");
  const std::string mode =
      "espalier: warning: mode rejection of --speculate has no effect where "
      "nothing is sampled\n";
  EXPECT_EQ(warning({"--speculate", "ngram:3:rejection"}), mode);
  EXPECT_EQ(warning({"--speculate", "ngram:3:rejection", "--num-beams", "2"}),
            mode);
  EXPECT_EQ(warning({"--speculate", "ngram:3:rejection", "--do-sample"}), "");
  // Options of a beam search, and a default value.
  EXPECT_EQ(warning({"--num-beams", "2", "--length-penalty", "2"}), "");
  EXPECT_EQ(warning({"--length-penalty", "1", "--early-stopping", "no"}), "");
}

TEST(GenerateTest, HelpIsGroupedByWhatOptionsAreAbout) {
  const std::string help = RunEspalier({"generate", "--help"}).out;
  size_t last = 0;
  for (const char* group : {"Search:", "Sampling:", "Penalties:",
                            "Constraints:", "Stopping:", "Reports:"}) {
    const size_t place = help.find(group);
    ASSERT_NE(place, std::string::npos) << group;
    EXPECT_GT(place, last) << group;
    last = place;
  }
}

TEST(GenerateTest, ASeedGivesTheSameSamplesAgain) {
  // Only likely tokens: a byte token may be a line end.
  const std::vector<std::string> sampling = {
      "--do-sample", "-n",      "3",  "--temperature",
      "2",           "--top-k", "20", "Where is the station?"};
  const std::vector<std::string> lines = SplitLines(Generate(sampling).out);
  ASSERT_THAT(lines, SizeIs(5));
  ASSERT_THAT(lines[4], MatchesRegex("  seed [0-9]+"));
  std::vector<std::string> again = sampling;
  again.insert(again.begin(), {"--seed", lines[4].substr(7)});
  EXPECT_EQ(SplitLines(Generate(again).out), lines);
  again[1] = "1";
  EXPECT_NE(SplitLines(Generate(again).out)[1], lines[1]);
}

TEST(GenerateTest, FlagsNeedNoValueButTakeOne) {
  EXPECT_EQ(Generate({"--do-sample=false", "It rains."}).out,
            Generate({"It rains."}).out);
  const ProgramRun bad = Generate({"--do-sample=perhaps", "It rains."});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--do-sample must be true or false"));
}

TEST(GenerateTest, LogProbabilitiesArePrintedByToken) {
  const ProgramRun run =
      Generate({"--logprobs", "2", "--prompt-logprobs", "0", "It rains."});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("log prob   rank  token\n"));
  EXPECT_THAT(run.out, HasSubstr("      1  \" Il\"  of \" Il\" -"));
  EXPECT_THAT(run.out, HasSubstr("\" rain\"\n"));
  EXPECT_THAT(run.out, HasSubstr("      1  </s>  of </s> -"));
}

TEST(GenerateTest, TheTextIsCutAtItsStop) {
  const std::string text = "Where is the station?";
  EXPECT_THAT(Generate({"--stop", " la", text}).out,
              HasSubstr("  Où se trouve\n"));
  EXPECT_THAT(Generate({"--stop", R"([" la"])", "--include-stop", text}).out,
              HasSubstr("  Où se trouve la\n"));
  EXPECT_EQ(Generate({"--stop", "5", text}).exit_code, 0);
}

TEST(GenerateTest, SeveralStopsAllStop) {
  const std::string text = "Where is the station?";
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"--stop", "gare", "--stop", " la"},
        {"--stop", " la", "--stop", "gare"},
        {"--stop", R"(["gare"])", "--stop", R"([" la", "x"])"}}) {
    std::vector<std::string> args = {text};
    args.insert(args.end(), stops.begin(), stops.end());
    EXPECT_THAT(Generate(args).out, HasSubstr("  Où se trouve\n"));
  }
}

TEST(GenerateTest, WhatBeginsLikeJsonHasToBeJson) {
  const auto error = [](const char* option, const char* value) {
    const ProgramRun run = Generate({option, value, "It rains."});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_THAT(error("--stop", R"(["x")"),
              HasSubstr(R"(--stop ["x": not JSON at byte 4)"));
  EXPECT_THAT(error("--stop", R"(["x")"),
              HasSubstr(R"(to stop at this very text, give --stop )"
                        R"('["[\"x\""]')"));
  EXPECT_THAT(error("--stop", "{'"), HasSubstr(R"(give --stop '["{'\''"]')"));
  const std::string long_text = "[" + std::string(100'000, 'x');
  const std::string cut_short = error("--stop", long_text.c_str());
  EXPECT_LT(cut_short.size(), 300u);
  EXPECT_THAT(cut_short, HasSubstr(R"(give --stop '["TEXT"]', with it as a )"
                                   "JSON string\n"));
  EXPECT_THAT(error("--stop", "{}"), HasSubstr("a list of strings, got {}"));
  EXPECT_THAT(error("--bad-words-ids", "[[7]"), HasSubstr("not JSON at byte"));
  // As it is advised.
  EXPECT_EQ(Generate({"--stop", R"(["[\"x\""])", "It rains."}).exit_code, 0);
}

TEST(GenerateTest, BadWordsAreGivenOneByOneOrAsAList) {
  const std::string free = Generate({"It rains."}).out;
  EXPECT_THAT(free, HasSubstr("pleut"));
  const ProgramRun one_by_one =
      Generate({"--bad-words", "pleut", "--bad-words", "Il", "It rains."});
  EXPECT_EQ(one_by_one.exit_code, 0) << one_by_one.err;
  EXPECT_THAT(one_by_one.out, Not(HasSubstr("pleut")));
  EXPECT_THAT(one_by_one.out, Not(HasSubstr("Il ")));
  EXPECT_EQ(Generate({"--bad-words", R"(["pleut", "Il"])", "It rains."}).out,
            one_by_one.out);
  const auto error = [](std::vector<std::string> args) {
    args.push_back("It rains.");
    const ProgramRun run = Generate(args);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_THAT(error({"--bad-words", R"(["a", ""])"}),
              HasSubstr(R"(--bad-words[1] must not be empty, got "")"));
  EXPECT_THAT(error({"--bad-words", "\xff"}),
              HasSubstr("--bad-words is not UTF-8"));
  EXPECT_THAT(error({"--bad-words", "[x"}),
              HasSubstr(R"(to ban this very text, give --bad-words '["[x"]')"));
}

TEST(GenerateTest, OptionsButStopAreGivenOnce) {
  const ProgramRun run =
      Generate({"--num-beams", "4", "--num-beams", "5", "It rains."});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--num-beams is given 2 times: 4, 5"));
}

TEST(GenerateTest, ValuesThatAreNoUtf8AreRefused) {
  const std::string no_text(100, '\x80');
  for (const char* option : {"--num-beams", "--stop"}) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {option, "5"}}) {
      std::vector<std::string> args = {option, no_text};
      args.insert(args.end(), more.begin(), more.end());
      const ProgramRun run = Generate(args, "It rains.\n");
      EXPECT_EQ(run.exit_code, 2);
      EXPECT_EQ(run.err,
                std::string("espalier: ") + option + " is not UTF-8\n");
    }
  }
}

TEST(GenerateTest, TextsAreTakenAsTheyAre) {
  const auto lines = SplitLines(Generate({"[a, b]", "--", "-5", "--x"}).out);
  ASSERT_THAT(lines, SizeIs(8));
  EXPECT_EQ(lines[0], "[a, b]");
  EXPECT_EQ(lines[3], "-5");
  EXPECT_EQ(lines[6], "--x");
}

// Once.
TEST(GenerateTest, ABlankTextIsShownInItsError) {
  for (const std::string stream : {"--stream", "--stream=false"}) {
    EXPECT_EQ(Generate({stream, std::string(100, ' ')}).err,
              "espalier: \"" + std::string(60, ' ') +
                  "...\": a text must not be blank\n");
    EXPECT_EQ(Generate({stream, ""}).err,
              "espalier: \"\": a text must not be blank\n");
  }
}

TEST(GenerateTest, LinesOfAFileMayBeBlankOrEndInCarriageReturns) {
  EXPECT_EQ(Generate({}, "\xEF\xBB\xBFIt rains.\r\n \t\r\nNo.\r\n").out,
            Generate({}, "It rains.\nNo.\n").out);
}

TEST(GenerateTest, OneLanguageAloneIsRefused) {
  EXPECT_THAT(Generate({"--from", "en", "No."}).err,
              HasSubstr("--from needs --to beside it"));
  EXPECT_THAT(Generate({"--to", "en", "No."}).err,
              HasSubstr("--to needs --from beside it"));
}

TEST(GenerateTest, OneFailedTextLeavesTheOthers) {
  const ProgramRun run = Generate({"It rains.", std::string("\xff"), "No."});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("prompt is not UTF-8"));
  EXPECT_THAT(run.out, HasSubstr("It rains."));
  EXPECT_THAT(run.out, HasSubstr("No."));
}

TEST(GenerateTest, ABlankLineStandsBetweenTextsAndNowhereElse) {
  for (const char* how : {"--stream", "--stream=false"}) {
    const std::string out = Generate({how, "It rains.", "No."}).out;
    EXPECT_EQ(Generate({how, "\xff", "It rains.", "\xff", "No.", " "}).out,
              out);
    EXPECT_EQ(std::ranges::count(SplitLines(out), ""), 1);
  }
}

TEST(GenerateTest, WhatFailsEveryTextIsSaidOnce) {
  for (const char* how : {"--stream", "--stream=false"}) {
    const ProgramRun run =
        Generate({how, "--kv-cache-mib", "1", "It rains.", "So it does."});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, MatchesRegex("espalier: each of the 2 texts: the "
                                      "request can never fit: .*\n"));
  }
}

TEST(GenerateTest, WhatCanNeverFitSaysWhatToRaiseOrLower) {
  for (const char* how : {"--stream", "--stream=false"}) {
    const ProgramRun run = Generate(
        {how, "--num-beams", "100", "--kv-cache-mib", "10", "It rains."});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err,
                HasSubstr("; lower --num-beams or --max-new-tokens, or raise "
                          "--kv-cache-mib\n"));
  }
}

TEST(GenerateTest, FailuresWithoutEndAreCountedNotKept) {
  std::string lines;
  for (int i = 0; i < 1500; ++i) lines += "\xff\n";
  const ProgramRun run = Generate({}, lines + "No.\n");
  EXPECT_EQ(run.exit_code, 1);
  const std::vector<std::string> errors = SplitLines(run.err);
  ASSERT_THAT(errors, SizeIs(1001));
  EXPECT_EQ(errors[999], "espalier: \"\\xff\": prompt is not UTF-8");
  EXPECT_EQ(errors[1000], "espalier: and 500 more texts: prompt is not UTF-8");
}

TEST(GenerateTest, ATextOfSeveralLinesIsShownOnOne) {
  for (const char* how : {"--stream", "--stream=false"}) {
    const std::vector<std::string> lines =
        SplitLines(Generate({how, "It rains.\r\nNo.\rYes.\n"}).out);
    EXPECT_EQ(lines.at(0), "It rains.↵No.↵Yes.↵");
    EXPECT_THAT(lines.at(1), ::testing::StartsWith("  "));
  }
}

TEST(GenerateTest, HelpTeachesByExample) {
  EXPECT_THAT(RunEspalier({"generate", "--help"}).out,
              HasSubstr("espalier generate -m models/en-fr --num-beams 5"));
  EXPECT_THAT(RunEspalier({"batch", "--help"}).out,
              HasSubstr("espalier batch -m models/en-fr requests.jsonl"));
  EXPECT_THAT(RunEspalier({"--help"}).out, HasSubstr("generate"));
}

TEST(GenerateTest, NothingToDoIsAnError) {
  EXPECT_THAT(Generate({}, "\n\n").err, HasSubstr("no text in stdin\n"));
  const ProgramRun run = Generate({"--file", ModelDirectory("en-fr")});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("Is a directory"));
}

TEST(EmbedTest, AModelOfOnesOwnGetsBeamSearch) {
  const ProgramRun run = RunProgram(ESPALIER_EMBED, {}, "");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out,
            " -0.8606  3 4 5 6 7 8 9\n"
            " -0.9099  4 5 6 7 8 9\n"
            " -0.9103  3 5 6 7 8 9\n");
}

}  // namespace
}  // namespace espalier::testing
