// Error messages for command lines that espalier cannot parse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/cli/program.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The long names in a help text that a value's name follows.
std::vector<std::string> OptionsWithAValue(const std::string& help) {
  std::vector<std::string> options;
  const std::regex line(
      "  (?:-\\w,)?(--[a-z-]+)(?:,--[a-z-]+)? [A-Z]+(?: .*)?");
  for (const std::string& text : SplitLines(help)) {
    std::smatch match;
    if (std::regex_match(text, match, line)) options.push_back(match[1]);
  }
  return options;
}

TEST(UsageTest, WhatWasProbablyMeantIsNamed) {
  const struct {
    std::vector<std::string> args;
    const char* message;
  } cases[] = {
      {{},
       "a command is needed. The commands are generate, batch, score, "
       "serve, tokenize, constrain, inspect, trace and transcribe."},
      {{"genrate", "It rains."},
       "no command \"genrate\"; did you mean generate? The commands are"},
      {{"translate"},
       "no command \"translate\". The commands are generate, batch, score, "
       "serve, tokenize, constrain, inspect, trace and transcribe."},
      {{"--versoin"},
       "no option --versoin before the command; did you mean --version?"},
      {{"--model", "x", "generate"}, "no option --model before the command"},
      {{"generate", "--modle", "x"}, "did you mean --model?"},
      {{"generate", "--num_beams=4"},
       "generate has no option --num_beams; did you mean --num-beams?"},
      {{"generate", "--beams", "4"}, "did you mean --num-beams?"},
      // Options of their own, and names of other programs for a field.
      {{"generate", "--regx", "a"}, "did you mean --regex?"},
      {{"serve", "--choices", "a"}, "did you mean --choice?"},
      {{"generate", "--temp", "4"}, "did you mean --temperature?"},
      {{"generate", "--n-predict", "4"}, "did you mean --max-new-tokens?"},
      {{"generate", "-p", "No."}, "texts are arguments without an option"},
      {{"batch", "--quantum", "x"}, "batch has no option --quantum\n"},
      {{"generate", "--quantum", "x"},
       "generate has no option --quantum; a text that begins with - goes "
       "after --\n"},
      {{"generate", "--num beams"},
       "no option --num; a text that begins with - goes after --\n"},
      {{"generate", "--num-beams 4"},
       "generate takes --num-beams and its value as two arguments, got "
       "\"--num-beams 4\"\n"},
      {{"batch", "--input x"},
       "batch takes --input and its value as two arguments, got \"--input "
       "x\"\n"},
      {{"batch", "--num-beams", "4"},
       "batch has no option --num-beams; each request has its own, "
       "\"params\": {\"num_beams\": ...}"},
      {{"batch", "-n", "4"}, "\"params\": {\"n\": ...}"},
      {{"batch", "-m", "x", "in.jsonl", "more.jsonl"},
       "batch has no use for \"more.jsonl\"; it reads one file of requests\n"},
      {{"batch", "-m", "x", "in.jsonl", "--input", "more.jsonl"},
       "--input is given more than once"},
      {{"batch", "-m", "x", "-f", "a", "--input", "b"},
       "batch: -f and --input, one option, are given more than once\n"},
      {{"generate", "No."}, "generate: --model is required\n"},
      {{"generate", "-m"}, "generate: -m needs a value"},
      {{"generate", "--model"}, "generate: --model needs a value"},
      {{"batch", "-m", "a", "-m", "b"}, "batch: -m is given more than once\n"},
      {{"score", "-m", "a", "--draft-model", "b"},
       "score has no option --draft-model; it is an option of generate\n"},
      {{"generate", "No.", "-n"}, "generate: -n needs a value"},
      {{"generate", "-n", "", "No."}, "generate: -n must not be empty"},
      {{"generate", "No.", "--max-tokens"}, "--max-tokens needs a value"},
      {{"trace", "a", "b"},
       "trace has no use for \"b\"; the picture's file is --output b\n"},
      {{"trace", "a", "--html"}, "did you mean --to html?"},
      {{"generate", "--promtp", "No."},
       "generate has no option --promtp; texts are arguments without an "
       "option"},
      {{"batch", "--prompt", "No."},
       "batch has no option --prompt; each request has its own, \"prompt\": "
       "...\n"},
      {{"batch", "--beam-size", "4"},
       "batch has no option --beam-size; each request has its own, \"params\": "
       "{\"num_beams\": ...}\n"},
      {{"batch", "--num-beans", "4"}, "\"params\": {\"num_beams\": ...}\n"},
      {{"batch", "-n4"},
       "batch has no option -n4; each request has its own, \"params\": {\"n\": "
       "...}\n"},
      {{"batch", "--text", "a"}, "each request has its own, \"prompt\": ...\n"},
      {{"generate", "--n-predcit", "4"}, "did you mean --max-new-tokens?"},
      {{"generate", "--eos-token", "2"}, "did you mean --eos-token-id?"},
      {{"generate", "--min-length", "2"}, "did you mean --min-new-tokens?"},
      {{"generate", "-t", "4"}, "did you mean --threads?"},
      {{"generate", "--stop-strings", "."}, "did you mean --stop?"},
      {{"serve", "--parallel", "4"}, "did you mean --max-running?"},
      {{"serve", "--model-path", "x"}, "did you mean --model?"},
      // Nor is a long option with one dash a short one and its value.
      {{"serve", "-m", "x", "-host", "127.0.0.1"},
       "serve has no option -host; did you mean --host?\n"},
      {{"generate", "-m", "x", "-host", "127.0.0.1"},
       "generate has no option -host; it is an option of serve\n"},
      {{"serve", "-m", "x", "-hf", "meta/x"},
       "serve has no option -hf; a model is a directory, -m DIR: nothing is "
       "downloaded\n"},
      {{"generate", "-m", "x", "-num_beams", "4"},
       "generate has no option -num_beams; did you mean --num-beams?\n"},
      {{"generate", "-m", "x", "-n_predict", "4"},
       "generate has no option -n_predict; did you mean --max-new-tokens?\n"},
      {{"generate", "-model", "x"},
       "generate has no option -model; did you mean --model?\n"},
      {{"generate", "-m", "x", "-num-beams=4"},
       "generate has no option -num-beams; did you mean --num-beams?\n"},
      {{"generate", "-m", "x", "-ngl", "99"},
       "generate has no option -ngl; a GPU has the whole model: --device "
       "cuda\n"},
      {{"generate", "--max-length", "4"}, "did you mean --max-new-tokens?\n"},
      {{"generate", "--use-beam-search"}, "; beams are --num-beams N\n"},
      {{"serve", "--pad-token-id", "0"},
       "; leave it out: the model has its own\n"},
      // It is no misspelling of --suppress-tokens, and no text either.
      {{"generate", "--tokens", "4"}, "generate has no option --tokens\n"},
      {{"generate", "--ssl-keyfile", "x"},
       "generate has no option --ssl-keyfile\n"},
      {{"serve", "--ssl-keyfile", "x"},
       "; TLS is for a proxy in front of it\n"},
      {{"serve", "--max-logprobs", "20"},
       "serve has no option --max-logprobs; leave it out: a request may ask "
       "for 64 at most\n"},
      {{"serve", "--alias", "x"}, "; did you mean --served-model-name?\n"},
      {{"generate", "--alias", "x"}, "generate has no option --alias\n"},
      {{"serve", "--lora", "x"},
       "; there are no adapters: merge them into the weights\n"},
      {{"serve", "--override-generation-config", "{}"},
       "; its fields are options, such as --temperature 0.7\n"},
      {{"generate", "--interactive"},
       "; without texts each line of stdin is one\n"},
      {{"generate", "-cnv"},
       "; did you mean --chat? Each text is a chat of its own\n"},
      {{"generate", "--verbose"}, "; did you mean --figures?\n"},
      {{"serve", "--verbose"}, "; did you mean --log-requests?\n"},
      {{"generate", "--mirostat", "2"}, "; there is nothing like it\n"},
      {{"generate", "--guided-grammar", "a"}, "; did you mean --constraint?\n"},
      {{"generate", "--src-lang", "en"}, "; did you mean --from?\n"},
      {{"generate", "--instructions", "a"}, "; did you mean --system?\n"},
      {{"batch", "--system-prompt", "a"},
       "; it is a message of \"role\": \"system\"\n"},
      {{"serve", "--reasoning-parser", "x"},
       "; there is none: an answer has its text as the model writes it\n"},
      {{"trace", "f", "--input-file", "g"},
       "trace has no option --input-file\n"},
      {{"inspect"}, "inspect: a model is needed: espalier inspect DIR\n"},
      {{"trace"},
       "trace: a file that --trace has written is needed: espalier trace "
       "FILE\n"},
  };
  for (size_t i = 0; i < std::size(cases); i += Cases(1, 2)) {
    const auto& [args, message] = cases[i];
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, StartsWith("espalier: "));
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_THAT(run.err, HasSubstr("--help says more."));
  }
}

// Options of vLLM's server, for every command that runs a model.
TEST(UsageTest, OptionsOfOtherEnginesAreAnswered) {
  const std::pair<const char*, const char*> cases[] = {
      {"--max-num-seqs", "; did you mean --max-running?\n"},
      {"--max_num_seqs", "; did you mean --max-running?\n"},
      {"--max-num-batched-tokens", "; did you mean --max-step-tokens?\n"},
      {"--block-size", "; did you mean --page-size?\n"},
      {"--blok-size", "; did you mean --page-size?\n"},
      {"--batch-size", "; did you mean --max-running?\n"},
      {"--gpu-memory-utilization",
       "; --kv-cache-mib is the memory of keys and values, beside the "
       "weights\n"},
      {"--max-model-len",
       "; the context is the model's; --kv-cache-mib is its memory\n"},
      {"--tensor-parallel-size",
       "; a model runs on one GPU, such as --device cuda:1\n"},
      {"-tp", "; a model runs on one GPU, such as --device cuda:1\n"},
      {"-pp", "; a model runs on one GPU, such as --device cuda:1\n"},
      {"-dp",
       "; a program runs on one GPU: start one for each, with --device "
       "cuda:N\n"},
      {"-q", "; did you mean --weights?\n"},
      // Another unit.
      {"--swap-space",
       "; --host-cache-mib counts MiB, --swap-space GiB: for 4 give "
       "--host-cache-mib 4096\n"},
      {"--kv-cache-dtype",
       "; keys and values are of the type that --dtype says\n"},
      {"--chat-template",
       "; a chat template is a file of the model's directory, "
       "chat_template.jinja, or chat_template in its "
       "tokenizer_config.json\n"},
      {"--enforce-eager",
       "; leave it out: steps replay CUDA graphs where they can, with the same "
       "results\n"},
      {"--trust-remote-code",
       "; leave it out: no Python of a model's directory is run\n"},
  };
  // Few cases have each option at one command.
  int which = 0;
  for (const char* const command : {"generate", "batch", "serve"}) {
    for (size_t i = Cases(0, which++); i < std::size(cases); i += Cases(1, 3)) {
      const auto& [option, hint] = cases[i];
      EXPECT_THAT(RunEspalier({command, "-m", "x", option, "4"}).err,
                  StartsWith(Concat("espalier: ", command, " has no option ",
                                    option, hint)));
    }
    EXPECT_THAT(
        RunEspalier({command, "--enable-prefix-caching"}).err,
        HasSubstr("; prefixes are shared unless --prefix-cache off says not "
                  "to\n"));
  }
  EXPECT_THAT(RunEspalier({"serve", "--api-key", "abc"}).err,
              HasSubstr("; a key is in --api-key-file FILE, or in the variable "
                        "ESPALIER_API_KEY\n"));
  EXPECT_THAT(RunEspalier({"serve", "--disable-log-requests"}).err,
              HasSubstr("; leave it out: requests are logged only with "
                        "--log-requests\n"));
  // A short option is itself alone, however near others are.
  EXPECT_THAT(RunEspalier({"serve", "-m", "x", "-p", "8000"}).err,
              HasSubstr("has no option -p; did you mean --port?\n"));
  EXPECT_THAT(RunEspalier({"batch", "-m", "x", "-t", "8"}).err,
              AllOf(HasSubstr("has no option -t"), Not(HasSubstr("GPU"))));
  // Without an option that does it there is no hint.
  EXPECT_THAT(RunEspalier({"tokenize", "--enable-prefix-caching"}).err,
              HasSubstr("has no option --enable-prefix-caching\n"));
}

TEST(UsageTest, AModelWithoutItsOptionIsGivenOne) {
  const std::string model = ModelDirectory("en-fr");
  for (const char* const command : {"batch", "generate", "tokenize"}) {
    EXPECT_THAT(RunEspalier({command, model}).err,
                StartsWith(Concat("espalier: ", command,
                                  ": --model is required: give it as -m ",
                                  model, "\n")));
  }
  EXPECT_THAT(RunEspalier({"serve", model}).err,
              StartsWith(Concat("espalier: serve has no use for \"", model,
                                "\"; a model is -m ", model, "\n")));
  EXPECT_THAT(RunEspalier({"generate", "--draft-model", model, "No."}).err,
              HasSubstr("generate: --model is required\n"));
}

TEST(UsageTest, WhatWasTypedIsCutShort) {
  const std::string many(100'000, 'x');
  const std::vector<std::string> cases[] = {
      {many},
      {"--" + many},
      {"batch", "-m", "x", "a", many},
      {"trace", "a", many},
      {"generate", "--" + many},
      {"generate", "-m", "x", "--num-beams 4" + many},
      {"generate", "-m", "x", "--stop", "--num-beams=" + many},
      {"generate", "-m", "x", "--device", many + '\xff', "a"},
      {"generate", "-m", "x", "--device", '\xff' + many, "a"}};
  for (const std::vector<std::string>& args : cases) {
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_LT(run.err.size(), 500u) << run.err.substr(0, 100);
    EXPECT_THAT(run.err, HasSubstr("xxx...")) << run.err.substr(0, 500);
  }
}

TEST(UsageTest, TheValueOfAnOptionIsNoOption) {
  for (const char* const value : {"-hello", "-host", "-model", "-x", "-n4"}) {
    const ProgramRun run =
        RunEspalier({"generate", "-m", "x", "--stop", value, "It rains."});
    EXPECT_THAT(run.err, HasSubstr("no such directory: x")) << value;
  }
}

// Nor is an option the value of another, unless it is written as such.
TEST(UsageTest, AnOptionIsNoValueOfAnother) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--stop", "--num-beams", "4"},
       "generate: --stop needs a value, and --num-beams is an option; if it is "
       "the value, write --stop=--num-beams\n"},
      {{"--cache-salt", "--num-beams=4"}, "write --cache-salt=--num-beams=4\n"},
      {{"--num-beams", "--stream"},
       "--num-beams needs a value, and --stream is an option"},
      {{"-f", "-n", "4"}, "write -f-n\n"},
      {{"--trace", "--help"}, "--help is an option"},
  };
  for (const auto& [options, message] : cases) {
    std::vector<std::string> args = {"generate", "-m", "x"};
    args.insert(args.end(), options.begin(), options.end());
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_THAT(run.err, HasSubstr("--help says more."));
  }
  for (const char* const stop : {"--stop=--num-beams", "--stop=-n"}) {
    EXPECT_THAT(RunEspalier({"generate", "-m", "x", stop, "No."}).err,
                HasSubstr("no such directory: x"));
  }
  EXPECT_THAT(RunEspalier({"generate", "-m", "x", "--stop", "--", "No."}).err,
              HasSubstr("no such directory: x"));
}

// Tests all options of these commands, so that none is forgotten.
TEST(UsageTest, NoOptionTakesAnEmptyValue) {
  int num_options = 0;
  for (const char* command : {"generate", "batch", "trace"}) {
    const std::string help = RunEspalier({command, "--help"}).out;
    for (const std::string& option : OptionsWithAValue(help)) {
      if (++num_options % Cases(1, 3) != 0) continue;
      // The second must not take what follows for its value.
      for (const std::vector<std::string>& args :
           {std::vector<std::string>{command, option, ""},
            {command, option + "=", "/nowhere"}}) {
        const ProgramRun run = RunEspalier(args);
        EXPECT_EQ(run.exit_code, 2);
        EXPECT_THAT(run.err,
                    StartsWith(Concat("espalier: ", command, ": ", option,
                                      " must not be empty\n")));
      }
    }
  }
  EXPECT_GE(num_options, 50);
}

TEST(UsageTest, NorDoesAFlagOrAFile) {
  EXPECT_THAT(RunEspalier({"generate", "--do-sample=", "No."}).err,
              HasSubstr("--do-sample must not be empty"));
  EXPECT_THAT(RunEspalier({"generate", "-f", ""}).err,
              HasSubstr("generate: -f must not be empty"));
  EXPECT_THAT(RunEspalier({"trace", ""}).err,
              HasSubstr("trace: file must not be empty"));
  // After -- it is no option.
  EXPECT_THAT(RunEspalier({"trace", "--", "--to="}).err,
              HasSubstr("cannot read --to="));
}

TEST(UsageTest, AFlagsValueIsNoText) {
  EXPECT_THAT(RunEspalier({"generate", "--do-sample", "False", "No."}).err,
              StartsWith("espalier: generate: write --do-sample=false; a text "
                         "that is just False goes after --\n"));
  EXPECT_THAT(RunEspalier({"batch", "--figures", "true"}).err,
              Not(HasSubstr("--figures=true")));
  for (const char* value :
       {"true", "false", "1", "0", "yes", "no", "on", "off"}) {
    const ProgramRun run = RunEspalier(
        {"generate", "-m", "/nowhere", "--do-sample", value, "No."});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr(Concat("write --do-sample=", value)));
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"--do-sample", "--", value},
          {"--stop", value, "No."}}) {
      std::vector<std::string> all = {"generate", "-m", "/nowhere"};
      all.insert(all.end(), args.begin(), args.end());
      EXPECT_THAT(RunEspalier(all).err, HasSubstr("no such directory"));
    }
  }
}

// The long names in a help text that no value's name follows.
std::vector<std::string> FlagsIn(const std::string& help) {
  std::vector<std::string> flags;
  const std::regex line("  (?:-\\w,)?(--[a-z-]+)(?: {2,}.*)?");
  for (const std::string& text : SplitLines(help)) {
    std::smatch match;
    if (!std::regex_match(text, match, line)) continue;
    if (match[1] != "--help") flags.push_back(match[1]);
  }
  return flags;
}

// Tests all flags of both commands, so that none is forgotten.
TEST(UsageTest, AllFlagsTakeTheSameSpellings) {
  const ScratchDirectory scratch;
  const std::string schema = scratch.Write("schema.json", "true");
  int num_flags = 0;
  for (const char* command : {"generate", "batch"}) {
    for (const std::string& flag :
         FlagsIn(RunEspalier({command, "--help"}).out)) {
      ++num_flags;
      const auto error = [&](const std::string& value) {
        std::vector<std::string> args = {command, "-m", "/nowhere",
                                         flag + "=" + value};
        if (flag == "--no-spaces") {
          args.insert(args.end(), {"--json-schema", schema});  // needs it
        }
        return RunEspalier(args).err;
      };
      for (const char* value : Cases<std::vector<const char*>>(
               {"true", "True", "yes", "on", "1", "FALSE", "no", "off", "0"},
               {"True", "off"})) {
        EXPECT_THAT(error(value), HasSubstr("no such directory")) << flag;
      }
      for (const char* value :
           Cases<std::vector<const char*>>({"banana", "2", "-1", "t"}, {"2"})) {
        EXPECT_THAT(error(value),
                    StartsWith(Concat("espalier: ", command, ": ", flag,
                                      " must be true or false, got \"", value,
                                      "\"\n")));
      }
      EXPECT_THAT(error("\xff"), HasSubstr("got \"\\xff\"\n"));
    }
  }
  EXPECT_GE(num_flags, 7);
}

TEST(UsageTest, WhatIsNoModelIsSaidToBeNone) {
  const ScratchDirectory scratch;
  const auto run = [](const std::string& model) {
    return RunEspalier({"generate", "-m", model, "It rains."}).err;
  };
  EXPECT_THAT(run("/nowhere"), HasSubstr("no such directory: /nowhere"));
  EXPECT_THAT(run(scratch.path()), HasSubstr(" has no config.json; a model"));
  EXPECT_THAT(run(scratch.Write("m.txt", "")),
              HasSubstr("m.txt is a file; a model is a directory with"));
  EXPECT_THAT(run(scratch.Write("m.gguf", "GGUF")),
              HasSubstr("m.gguf is a GGUF file"));
}

TEST(UsageTest, HelpAndVersionAreUnderstoodWhereverTheyStand) {
  const std::string help = RunEspalier({"--help"}).out;
  EXPECT_THAT(help, HasSubstr("tokenize"));
  EXPECT_EQ(RunEspalier({"help"}).out, help);
  EXPECT_EQ(RunEspalier({"version"}).out, RunEspalier({"--version"}).out);
  for (const char* command : {"generate", "batch", "tokenize"}) {
    EXPECT_EQ(RunEspalier({"help", command}).out,
              RunEspalier({command, "--help"}).out);
    EXPECT_EQ(RunEspalier({command, "--version"}).out,
              RunEspalier({"--version"}).out);
  }
  EXPECT_THAT(RunEspalier({"help", "genrate"}).err,
              HasSubstr("did you mean generate?"));
  const ProgramRun wrong = RunEspalier({"genrate", "--version"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.out, "");
  EXPECT_THAT(wrong.err, HasSubstr("did you mean generate?"));
}

TEST(UsageTest, HelpSaysWhatAnOptionTakesWhereItIsAnArgumentToo) {
  const std::string help = RunEspalier({"inspect", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("\n  -m,--model DIR  "));
  EXPECT_THAT(help, HasSubstr("\n  model  "));
}

TEST(UsageTest, HelpFitsATerminal) {
  for (const char* command : {"generate", "batch", "score", "tokenize", "trace",
                              "serve", "inspect", "transcribe"}) {
    const ProgramRun help = RunEspalier({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    for (const std::string& line : SplitLines(help.out)) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

}  // namespace
}  // namespace espalier::testing
