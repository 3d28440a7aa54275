// Wrong values of options, found by the command line, the request format, or
// the limits of the model or the memory. All errors name the option as typed,
// and end with the same exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "request/param_fields.h"
#include "tests/cli/program.h"
#include "tests/few_cases.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ProgramRun GenerateWith(std::vector<std::string> args) {
  args.insert(args.begin(), {"generate", "-m", ModelDirectory("en-fr")});
  return RunEspalier(args);
}

struct WrongValue {
  std::vector<std::string> args;
  const char* message;
  bool shows_late = false;  // when a text has begun
};

// A list of all token ids: none is left.
std::string AllTokens() {
  std::string list = "[0";
  for (int i = 1; i < 6000; ++i) list += "," + std::to_string(i);
  return list + "]";
}

std::vector<WrongValue> WrongValues() {
  static const std::string* const kAllTokens = new std::string(AllTokens());
  return {
      // The command line.
      {{"--page-size", "0"}, "--page-size must be an integer in [1, 4096]"},
      {{"--page-size", "99999999999999999999"}, "got \"99999999999999999999\""},
      {{"--max-running", "-1"}, "--max-running must be an integer in [1, "},
      {{"--prefill-share", "1.5"},
       "--prefill-share must be a number in [0, 1], got \"1.5\""},
      {{"--prefill-share", "half"}, "a number in [0, 1], got \"half\""},
      {{"--prefill-share", "nan"}, "a number in [0, 1], got \"nan\""},
      {{"--step-timeout", "0"},
       "--step-timeout must be a number of seconds above 0 and at most 1e+09, "
       "got \"0\""},
      {{"--step-timeout", "-3"}, "above 0 and at most 1e+09, got \"-3\""},
      {{"--step-timeout", "soon"}, "a number of seconds above 0"},
      {{"--step-timeout", "inf"}, "a number of seconds above 0"},
      {{"--step-timeout", "nan"}, "a number of seconds above 0"},
      {{"--figures=perhaps"}, "--figures must be true or false"},
      {{"--device", "tpu"}, "--device must be auto, cpu, cuda or cuda:N"},
      {{"--device", "\xff"}, "N from 0, got \"\\xff\"\n"},
      {{"--dtype", "\xff"}, "f32, f16 or bf16, got \"\\xff\"\n"},
      {{"--dtype", "half"},
       "--dtype must be f32, f16 or bf16, got \"half\"; did you mean f16?\n"},
      {{"--weights", "int2"}, "stored, fp8, int8 or int4, got \"int2\"\n"},
      {{"--threads", "\xff"}, "in [0, 1024], got \"\\xff\"\n"},
      {{"--from", "en"}, "--from needs --to beside it"},
      {{"--template", "xx"},
       "espalier: --template: no prompt template \"xx\"; the model has en-fr "
       "(en to fr), fr-en (fr to en)\n"},
      {{"--from", "xx", "--to", "fr"},
       "espalier: --from and --to: no prompt template from \"xx\" to \"fr\"; "
       "the model has "},
      // The request format.
      {{"--num-beams", "few"}, "--num-beams must be an integer, got \"few\""},
      {{"--num-beams", "99999999999999999999"}, "--num-beams must be an int"},
      {{"--num-beams", "2.5"}, "--num-beams must be an integer, got 2.5"},
      {{"--top-p", "most"}, "--top-p must be a number, got \"most\""},
      {{"--seed", "-1"}, "--seed must be an integer in [0, 2^64), got -1"},
      {{"--stop", "[5]"}, "--stop[0] must be a string, got 5"},
      {{"--bad-words-ids", "[[7]"}, "--bad-words-ids [[7]: not JSON at byte"},
      {{"--logit-bias", "{\"x\": 1}"}, "--logit-bias must have token ids as k"},
      {{"--logit-bias", "{279: -100}"},
       "syntax error; keys stand in double quotes, as in '{\"7\": -2.5}'\n"},
      {{"--logit-bias", "{\"7\": 1, 8: 2}"},
       "not JSON at byte 9: syntax error; keys stand in double quotes, as in "},
      {{"--logit-bias", "{\"1\": 2,}"},
       "not JSON at byte 8: syntax error; there is a trailing comma before "
       "it\n"},
      {{"--prefix-cache", "maybe"},
       "--prefix-cache must be on or off, got \"maybe\"\n"},
      {{"--deadline-ms", "1s"}, "--deadline-ms must be an integer, got \"1s\""},
      {{"--priority", "high"}, "--priority must be an integer, got \"high\""},
      {{"--cache-salt", "a", "--cache-salt", "b"},
       "--cache-salt is given 2 times"},
      {{"--num-beams", "2", "--num-beams", "3"},
       "--num-beams is given 2 times"},
      {{"--n", "2", "--num-return-sequences", "3"},
       "espalier: --n and --num-return-sequences, one option, are given 2 "
       "times: 2, 3\n"},
      {{"--speculate", "eagle"},
       "--speculate: method must be \"ngram\", \"suffix\", \"constraint\", "
       "\"draft\" or "
       "\"off\", "
       "got \"eagle\""},
      {{"--speculate", "true"},
       "--speculate must be \"off\", \"METHOD[:NUM_TOKENS[:MODE]]\" or an "
       "object, got true\n"},
      {{"--speculate", "none"}, "\"draft\" or \"off\", got \"none\""},
      {{"--speculate", "off:5"},
       "--speculate: num_tokens must be left out with method \"off\", got 5"},
      {{"--speculate", "ngram:1e99"},
       "--speculate: num_tokens must be an integer in [1, 32], got 1e99"},
      {{"--speculate", "ngram:33"},
       "--speculate: num_tokens must be at most 32, got 33"},
      {{"--deadline-ms", "null"}, "--deadline-ms must be an integer, got null"},
      {{"--deadline-ms", "0"}, "--deadline-ms must be at least 1, got 0"},
      {{"--deadline-ms", "1e300"},
       "--deadline-ms must be an integer in [1, 2147483647], got 1e300\n"},
      {{"--deadline-ms", "nan"},
       "--deadline-ms must be an integer, got \"nan\""},
      {{"--speculate", "{\"method\": \"ngram\", \"n\": 3}"},
       "--speculate must have no field \"n\""},
      // Ranges, and options that have no meaning together.
      {{"--num-beams", "0"}, "--num-beams must be at least 1, got 0"},
      {{"--num-beams", "-3"}, "--num-beams must be at least 1, got -3"},
      {{"--num-beams", "99999999999999999999"},
       "--num-beams must be an integer in [1, 1048576], got "
       "99999999999999999999\n"},
      {{"--num-beams", "1048577"}, "--num-beams must be at most "},
      {{"--num-beams", "100000"},
       "--num-beams must be at most 8192 (--max-beams, what a step has room "
       "for), got 100000\n"},
      {{"--max-tokens", "1e30"},
       "--max-tokens must be an integer in [1, 2^63), got 1e30\n"},
      {{"-n", "3"},
       "-n must be 1 in greedy search (--num-beams is 1 and "
       "--do-sample false), got 3; raise --num-beams for the best of a search, "
       "or add --do-sample for samples\n"},
      {{"--n", "0"}, "--n must be at least 1, got 0"},
      {{"--n=x"}, "--n must be an integer"},
      {{"-nx"}, "-n must be an integer"},
      {{"--num-return-sequences", "0"}, "--num-return-sequences must be at l"},
      {{"--num-beams", "2", "-n", "3"}, "-n must be at most 2 (--num-beams)"},
      {{"--max-tokens", "0"}, "--max-tokens must be at least 1, got 0"},
      {{"--top-p", "0.5"},
       "--top-p must be 1 without --do-sample or "
       "--stochastic, got 0.5; add --do-sample to draw by it"},
      {{"--include-stop"}, "--include-stop must be false without --stop"},
      {{"--temperature", "1e999"}, "--temperature must be"},
      {{"--length-penalty", "1e9", "--max-tokens", "9"},
       "--length-penalty must keep length^length_penalty within float32 up to "
       "9 tokens (--max-tokens)"},
      {{"--prefix-cache", "off", "--cache-salt", "a"},
       "--cache-salt must be empty with --prefix-cache off, got \"a\""},
      {{"--cache-salt", std::string(257, 's')},
       "--cache-salt must have at most 256 bytes, got 257: \"sss"},
      {{"--tenant", std::string(257, 't')},
       "--tenant must have at most 256 bytes, got 257: \"ttt"},
      {{"--deadline-ms", "0"}, "--deadline-ms must be at least 1, got 0"},
      {{"--deadline-ms", "2147483648"},
       "--deadline-ms must be at most 2147483647, got 2147483648"},
      {{"--priority", "9007199254740992"},
       "--priority must be at most 4503599627370496, got 9007199254740992"},
      {{"--logprobs", "65"}, "--logprobs must be at most 64, got 65"},
      {{"--speculate", "ngram:33"},
       "--speculate: num_tokens must be at most 32, got 33"},
      {{"--speculate", "ngram:8", "--num-beams", "4", "--do-sample"},
       "--speculate: method must be \"off\" with --do-sample, --stochastic or "
       "--num-beam-groups beside --num-beams, got \"ngram\"\n"},
      // The model.
      {{"--template", "\xC3"}, "espalier: --template is not UTF-8\n"},
      {{"--from", "\xC3", "--to", "fr"}, "espalier: --from is not UTF-8\n"},
      {{"--speculate", "draft"},
       "--speculate: method must be \"ngram\", \"suffix\", \"constraint\" or "
       "\"off\" without a "
       "draft model, got \"draft\"; give one by --draft-model DIR\n"},
      {{"--max-new-tokens", "5000"},
       "--max-new-tokens must be at most 1023, as the prompt and what is "
       "generated fit into the model's context of 1024 together, got 5000\n"},
      {{"--min-tokens", "-1"}, "--min-tokens must be at least 0, got -1"},
      {{"--eos-token-id", "6000"},
       "--eos-token-id must be a token id in [0, 6000), got 6000\n"},
      {{"--allowed-token-ids", "[-1]"},
       "--allowed-token-ids must be a token id in ["},
      {{"--logit-bias", "{\"6000\": 1}"},
       "--logit-bias must name token ids in"},
      // The memory.
      {{"--kv-cache-mib", "1"}, "lower --max-new-tokens, or raise --kv-cache-"},
      {{"--host-cache-mib", "1", "--page-size", "4096"},
       "espalier: --host-cache-mib must hold a page of 24 MiB (--page-size "
       "4096), got 1\n"},
      {{"--kv-cache-mib", "1", "--page-size", "4096"},
       "espalier: --kv-cache-mib must hold a page of 24 MiB (--page-size "
       "4096), got 1\n"},
      {{"--host-cache-mib", "10", "--preempted-pages", "drop"},
       "espalier: --host-cache-mib must be 0, or unset, with "
       "--preempted-pages drop, which puts no page there\n"},
      // The search.
      {{"--suppress-tokens", *kAllTokens},
       "--suppress-tokens leaves none to ",
       true},
  };
}

TEST(WrongValuesTest, DefaultsOfAServerAreNamedAsTyped) {
  const ProgramRun run = RunEspalier({"serve", "-m", ModelDirectory("en-fr"),
                                      "--port", "0", "--num-beams", "99999"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "espalier: --num-beams must be in [1, 1024] (--max-num-beams), got "
            "99999\n");
}

// Holds even if only the model shows the error.
TEST(WrongValuesTest, DefaultsOfAServerAreOfTheirOptionOrFile) {
  const ScratchDirectory scratch;
  const std::string wrong = scratch.Write("wrong.json", R"({"min_p": 7})");
  const std::string marked =
      scratch.Write("marked.json", "\xEF\xBB\xBF{\"min_p\": 7}");
  const std::string long_ones =
      scratch.Write("long.json", R"({"max_tokens": 5000})");
  const std::string no_beams =
      scratch.Write("no_beams.json", R"({"use_beam_search": false})");
  const auto of_file = [](const std::string& file, std::string_view what) {
    return Concat("espalier: --defaults: ", file, ": ", what);
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--max-tokens", "5000"},
       "espalier: --max-tokens must be at most 1023 (a context of 1024 less 1 "
       "prompt token), got 5000\n"},
      {{"--num-beams", "4", "--patience", "2"},
       "espalier: --patience must be 1 without --early-stopping true, got 2\n"},
      {{"--defaults", wrong},
       of_file(wrong, "min_p must be in [0, 1], got 7\n")},
      {{"--defaults", marked},
       of_file(marked, "min_p must be in [0, 1], got 7\n")},
      {{"--defaults", wrong, "--top-p", "5"},
       "espalier: --top-p must be in (0, 1], got 5\n"},
      {{"--defaults", long_ones},
       of_file(long_ones,
               "max_tokens must be at most 1023 (a context of 1024 less 1 "
               "prompt token), got 5000\n")},
      {{"--defaults", no_beams, "--num-beams", "4"},
       of_file(no_beams,
               "use_beam_search must be true with num_beams above 1, got "
               "false\n")},
  };
  for (const auto& [options, message] : cases) {
    std::vector<std::string> args = {"serve",  "-m", ModelDirectory("en-fr"),
                                     "--port", "0",  "--device",
                                     "cpu"};
    args.insert(args.end(), options.begin(), options.end());
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err, message);
  }
}

TEST(WrongValuesTest, NothingRunsAndTheOptionIsNamedAsTyped) {
  const std::vector<WrongValue> all = WrongValues();
  for (size_t i = 0; i < all.size(); i += Cases(1, 2)) {
    const WrongValue& wrong = all[i];
    // With few cases, --stream and --stream=false alternate.
    for (const char* how : Cases<std::vector<const char*>>(
             {"--stream", "--stream=false"},
             {i % 4 == 0 ? "--stream" : "--stream=false"})) {
      std::vector<std::string> args = {how};
      args.insert(args.end(), wrong.args.begin(), wrong.args.end());
      args.insert(args.end(), {"It rains.", "It rains."});
      const ProgramRun run = GenerateWith(args);
      EXPECT_EQ(run.exit_code, 2) << run.err;
      EXPECT_THAT(run.err, StartsWith("espalier: "));
      EXPECT_THAT(run.err, HasSubstr(wrong.message));
      if (wrong.shows_late) continue;
      // Printed once for any number of texts.
      EXPECT_EQ(std::ranges::count(run.err, '\n'),
                run.err.find("--help") == std::string::npos ? 1 : 2)
          << run.err;
    }
  }
}

// Errors contain no field name, only options.
TEST(WrongValuesTest, NoErrorNamesAField) {
  const std::vector<WrongValue> all = WrongValues();
  // Few cases are of those that the test above leaves out.
  for (size_t i = Cases(0, 1); i < all.size(); i += Cases(1, 4)) {
    std::vector<std::string> args = all[i].args;
    args.push_back("It rains.");
    const std::string error = GenerateWith(args).err;
    for (const ParamField& field : ParamFields()) {
      const std::string name(field.name);
      if (name.find('_') == std::string::npos) continue;
      if (name == "length_penalty") continue;  // part of the formula
      EXPECT_EQ(error.find(name), std::string::npos) << error;
    }
  }
}

// Whatever finds it.
TEST(WrongValuesTest, WhatIsWrongWithTheModelNamesTheOption) {
  const ScratchDirectory model;
  const auto expect = [](const std::string& path, const std::string& message) {
    const ProgramRun run = RunEspalier({"generate", "-m", path, "No."});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err.find("espalier: -m: "), 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr(message));
  };
  expect(model.path("x"), "no such directory: " + model.path("x"));
  expect(model.Write("file", ""), "file is a file; a model is a directory");
  expect(model.path(), " has no config.json");
  model.Write("config.json", "{}");
  model.Write("tokenizer.model", "{");
  expect(model.path(), "tokenizer.model");
  std::filesystem::remove(model.path("tokenizer.model"));
  model.Write("config.json", "{");
  expect(model.path(), "config.json: not JSON");
  std::filesystem::remove(model.path("config.json"));
  for (const std::string file : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(ModelDirectory("en-fr") + "/" + file,
                                    model.path(file));
  }
  expect(model.path(),
         "no source.spm, tokenizer.json, tokenizer.model, spiece.model, "
         "sentencepiece.bpe.model or "
         "merges.txt: put the model's tokenizer there, or use espalier batch "
         "with prompt_tokens\n");
  std::filesystem::remove(model.path("model.safetensors"));
  expect(model.path(), " has neither model.safetensors nor ");
}

TEST(WrongValuesTest, AnEndlessPipeIsNotReadForThem) {
  const ProgramRun run = RunProgram(
      "/bin/sh",
      {"-c", std::string("yes No. | ") + ESPALIER_PROGRAM +
                 " generate --num-beams 0 -m " + ModelDirectory("en-fr")},
      "");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err, "espalier: --num-beams must be at least 1, got 0\n");
}

TEST(WrongValuesTest, ValuesInQuotesStayAsTheyAre) {
  EXPECT_THAT(GenerateWith({"--early-stopping", "stop num_beams", "No."}).err,
              HasSubstr("--early-stopping must be true, false or \"never\", "
                        "got \"stop num_beams\"\n"));
}

TEST(WrongValuesTest, TheExitCodeCountsTexts) {
  EXPECT_EQ(GenerateWith({"No.", "Yes."}).exit_code, 0);
  EXPECT_EQ(GenerateWith({"No.", " "}).exit_code, 1);
  EXPECT_EQ(GenerateWith({" ", "\xff", "No."}).exit_code, 1);
  EXPECT_EQ(GenerateWith({" "}).exit_code, 2);
  EXPECT_EQ(GenerateWith({" ", "\xff"}).exit_code, 2);
  EXPECT_EQ(GenerateWith({"--max-new-tokens", "1015", "It rains."}).exit_code,
            0);
  // A limit that is the longer text's alone.
  EXPECT_EQ(GenerateWith({"--max-new-tokens", "1015", "It rains.",
                          "It rains and rains and rains and rains and rains."})
                .exit_code,
            1);
  EXPECT_THAT(RunEspalier({"generate", "--help"}).out,
              HasSubstr("Exit code: 0 if every text succeeded, 1 if some "
                        "failed, 2 if none succeeded"));
}

TEST(WrongValuesTest, ADefaultIsNoValueOfTheUsers) {
  // Too large a power of 256, the default, but not of what the prompt leaves.
  std::string text = "It rains";
  for (int i = 0; i < 225; ++i) text += " and it rains";
  const ProgramRun run = GenerateWith(
      {"--num-beams", "2", "--length-penalty", "16.5", text + "."});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

}  // namespace
}  // namespace espalier::testing
