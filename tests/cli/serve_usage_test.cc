// Errors of espalier serve for unknown options and wrong values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/cli/program.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ServeUsageTest, AHostHasNoPort) {
  const std::pair<std::string, std::string> cases[] = {
      {"127.0.0.1:8001", "the port is --port"},
      {"localhost:8001", "the port is --port"},
      {"http://127.0.0.1", "the port is --port"},
      {"[::1]:8001", "the port is --port"},
      {"[::1]", "write ::1"},
      {"::ffff:127.0.0.1", "write 127.0.0.1"},
      {"[::ffff:127.0.0.1]", "write 127.0.0.1"},
      {"::FFFF:10.0.0.1", "write 10.0.0.1"},
      {"::ffff:7f00:1", "write 127.0.0.1"},
      {"0:0:0:0:0:ffff:127.0.0.1", "write 127.0.0.1"},
      {"[]", "the port is --port"},
  };
  for (const auto& [host, hint] : cases) {
    const ProgramRun run = RunEspalier({"serve", "-m", "x", "--host", host});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err, Concat("espalier: --host must be a name or an address "
                              "alone, got \"",
                              host, "\"; ", hint, "\n"));
  }
}

TEST(ServeUsageTest, LimitsOfFilesNeedAFolder) {
  for (const char* const option :
       {"--max-files", "--max-file-mib", "--max-files-mib", "--max-batches",
        "--max-batch-lines", "--batch-calls"}) {
    const ProgramRun run =
        RunEspalier({"serve", "-m", "/nowhere", option, "3"});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr(Concat(option, " requires --files")));
  }
  EXPECT_THAT(RunEspalier({"serve", "-m", "/nowhere", "--tenant-prefix", "48",
                           "--api-key-file", "keys"})
                  .err,
              HasSubstr("--api-key-file excludes --tenant-prefix"));
  EXPECT_THAT(RunEspalier({"serve", "--help"}).out,
              Not(HasSubstr("64 by default")));
}

TEST(ServeUsageTest, HelpHasTheRoutesThatGenerateAndScore) {
  const std::string help = RunEspalier({"serve", "--help"}).out;
  for (const char* const route :
       {"/v1/completions", "/v1/chat/completions", "/v1/responses",
        "/inference/v1/generate", "/generative_scoring"}) {
    EXPECT_THAT(help, HasSubstr(route));
  }
}

// However it is written, it is found to be one before the model is looked for.
TEST(ServeUsageTest, AHostIsThisMachinesOrNeedsAKey) {
  const auto serve = [](const std::string& host) {
    return RunEspalier(
               {"serve", "-m", "/nowhere", "--port", "0", "--host", host})
        .err;
  };
  for (const char* const host :
       {"localhost", "LOCALHOST", "localhost.", "127.1"}) {
    EXPECT_THAT(serve(host), HasSubstr("no such directory")) << host;
  }
  EXPECT_THAT(serve("nosuch.invalid"),
              StartsWith("espalier: --host \"nosuch.invalid\" has no address"));
  for (const char* const host : {"0.0.0.0", "0", "192.0.2.1"}) {
    EXPECT_THAT(serve(host),
                StartsWith(Concat("espalier: --host ", host,
                                  " lets others use the server without an API "
                                  "key: give --api-key-file")));
  }
}

TEST(ServeUsageTest, AnOptionsListIsNamedWithThePlaceInIt) {
  const ProgramRun run =
      RunEspalier({"serve", "-m", ModelDirectory("en-fr"), "--port", "0",
                   "--bad-words-ids", "[[5], [5, 99999]]"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, StartsWith("espalier: --bad-words-ids[1][1] must be "));
}

TEST(ServeUsageTest, NoDefaultIsBeyondWhatAllPromptsMayMake) {
  const auto serve = [](const std::string& option) {
    return RunEspalier({"serve", "-m", ModelDirectory("en-fr"), "--port", "0",
                        option, "4", "--max-choices", "2"});
  };
  for (const char* const option : {"--num-beams", "-n"}) {
    const ProgramRun run = serve(option);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err, Concat("espalier: ", option, " must be in [1, 2] ",
                              "(--max-choices), got 4\n"));
  }
}

// Calls of completions have 16 tokens by default.
TEST(ServeUsageTest, ALanguageThatNeedsMoreTokensIsNamedWithTheirOption) {
  const std::string schema = R"({"type": "array", "minItems": 50,
      "maxItems": 50, "items": {"const": "abcdef"}})";
  const auto error = [&](std::vector<std::string> args) {
    args.insert(args.begin(),
                {"serve", "-m", ModelDirectory("en-fr"), "--port", "0"});
    return RunEspalier(args).err;
  };
  EXPECT_THAT(error({"--json-schema", schema}),
              ContainsRegex("^espalier: --max-new-tokens must be at least "
                            "[0-9]+, which a text of --json-schema needs, got "
                            "16\n$"));
  EXPECT_THAT(error({"--json-schema", schema, "--max-new-tokens", "20"}),
              ContainsRegex("^espalier: --max-new-tokens must be at least "
                            "[0-9]+, which a text of --json-schema needs, got "
                            "20\n$"));
  const ScratchDirectory scratch;
  const std::string file = scratch.Write(
      "defaults.json",
      R"({"constraint": {"regex": "[0-9]{40}"}, "max_tokens": 3})");
  EXPECT_THAT(error({"--defaults", file}),
              HasSubstr(file + ": max_tokens must be at least "));
}

TEST(ServeUsageTest, HowCallsSpeculateIsAnOptionThatErrorsName) {
  for (const char* const value : {"draft", "ngram:99"}) {
    const ProgramRun run = RunEspalier({"serve", "-m", ModelDirectory("en-fr"),
                                        "--port", "0", "--speculate", value});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, StartsWith("espalier: --speculate"));
  }
}

TEST(ServeUsageTest, ADraftModelIsMissingByTheNameOfItsOption) {
  const ProgramRun run = RunEspalier({"serve", "-m", ModelDirectory("en-fr"),
                                      "--port", "0", "--speculate", "draft"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("without a draft model, got \"draft\"; give "
                                 "one by --draft-model DIR"));
}

TEST(ServeUsageTest, AnUnknownFormatOfToolCallsIsNamed) {
  const ProgramRun run =
      RunEspalier({"serve", "-m", ModelDirectory("en-fr"), "--port", "0",
                   "--tool-call-parser", "pythonic"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(
      run.err,
      HasSubstr("serve: --tool-call-parser must be hermes, llama3_json, "
                "mistral, none or auto, got \"pythonic\""));
}

TEST(ServeUsageTest, WhatCallsOfAServerHaveIsNoOptionOfIt) {
  for (const char* const option : {"--from", "--to", "--template"}) {
    EXPECT_THAT(RunEspalier({"serve", "-m", "x", option, "fr"}).err,
                StartsWith(Concat(
                    "espalier: serve has no option ", option,
                    "; each completion has its own, \"template\": \"NAME\"; "
                    "espalier inspect DIR lists the names\n")));
  }
  EXPECT_THAT(RunEspalier({"serve", "--stream"}).err,
              HasSubstr("each call has its own, \"stream\": true\n"));
  EXPECT_THAT(RunEspalier({"serve", "--chat"}).err,
              HasSubstr("a chat is a call of /v1/chat/completions\n"));
}

TEST(ServeUsageTest, AServerOffersNoDefaultThatItRefuses) {
  const std::string help = RunEspalier({"serve", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("--decoder-prompt-tokens"));
  EXPECT_THAT(help, Not(HasSubstr("--decoder-prompt PREFIX")));
  EXPECT_THAT(RunEspalier({"serve", "-m", "x", "--decoder-prompt", "a"}).err,
              HasSubstr("--decoder-prompt must not have a default, got "));
}

TEST(ServeUsageTest, AModelMayHaveSeveralNames) {
  const auto serve = [](const std::string& second) {
    return RunEspalier({"serve", "-m", "/nowhere", "--port", "0",
                        "--served-model-name", "a", "--served-model-name",
                        second})
        .err;
  };
  EXPECT_THAT(serve("b"), HasSubstr("no such directory: /nowhere"));
  EXPECT_THAT(serve(""), HasSubstr("--served-model-name must not be empty"));
}

}  // namespace
}  // namespace espalier::testing
