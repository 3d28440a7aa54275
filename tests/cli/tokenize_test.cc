// espalier tokenize: texts as tokens, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

ProgramRun Tokenize(std::vector<std::string> args, const std::string& input) {
  args.insert(args.begin(), {"tokenize", "-m", ModelDirectory("en-fr")});
  return RunEspalier(args, input);
}

json::array TokensOf(const std::string& text,
                     const std::vector<std::string>& args = {}) {
  const ProgramRun run =
      Tokenize(args, WriteJson(json::object{{"text", text}}) + "\n");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return ParseLines(run.out)[0].at("tokens").as_array();
}

TEST(TokenizeTest, TokensGiveTheirTextBack) {
  const ProgramRun tokens =
      Tokenize({}, "{\"text\": \"It rains.\"}\n\n{\"text\": \"\\u00e9\"}");
  EXPECT_EQ(tokens.exit_code, 0) << tokens.err;
  const ProgramRun texts = Tokenize({"--decode"}, tokens.out);
  EXPECT_EQ(texts.exit_code, 0) << texts.err;
  EXPECT_EQ(texts.out, "{\"text\": \"It rains.\"}\n{\"text\": \"é\"}\n");
}

TEST(TokenizeTest, NamesOfSpecialTokensAreTextUnlessAskedFor) {
  const json::array as_text = TokensOf("</s>");
  const json::array as_token = TokensOf("</s>", {"--special"});
  ASSERT_EQ(as_token.size(), 1);
  EXPECT_GT(as_text.size(), 1);
  const ProgramRun shown = Tokenize(
      {"--decode"}, WriteJson(json::object{{"tokens", as_token}}) + "\n");
  EXPECT_EQ(shown.out, "{\"text\": \"</s>\"}\n");
}

TEST(TokenizeTest, ABadLineIsAnsweredInItsPlace) {
  const ProgramRun run = Tokenize({},
                                  "{\"text\": 5}\n"
                                  "{\"text\": \"\"}\n"
                                  "{\"txt\": \"a\"}\n"
                                  "{}\n"
                                  "[]\n"
                                  "{\n");
  EXPECT_EQ(run.exit_code, 1);
  const std::vector<std::string> lines = SplitLines(run.out);
  ASSERT_EQ(lines.size(), 6);
  EXPECT_EQ(lines[0], "{\"error\": \"text must be a string, got 5\"}");
  EXPECT_EQ(lines[1], "{\"tokens\": []}");
  EXPECT_THAT(lines[2], HasSubstr("unknown field \\\"txt\\\""));
  EXPECT_THAT(lines[3], HasSubstr("field \\\"text\\\" is missing"));
  EXPECT_THAT(lines[4], HasSubstr("a line must be {\\\"text\\\": ...}"));
  EXPECT_THAT(run.err, HasSubstr("espalier: stdin:1: text must be"));
}

// Those of the output are of the others, and errors count them nonetheless.
TEST(TokenizeTest, BlankLinesAreSkipped) {
  const ProgramRun run = Tokenize({}, "\n{\"text\": \"\"}\n \t\r\n{}\n");
  EXPECT_EQ(run.exit_code, 1);
  const std::vector<std::string> lines = SplitLines(run.out);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0], "{\"tokens\": []}");
  EXPECT_THAT(lines[1], HasSubstr("field \\\"text\\\" is missing"));
  EXPECT_THAT(run.err, HasSubstr("espalier: stdin:4: field"));
}

TEST(TokenizeTest, TokensThatAreNoneAreRefused) {
  for (const char* list : {"[-1]", "[1, 6000000]", "[1.5]", "[\"a\"]"}) {
    const ProgramRun run =
        Tokenize({"--decode"}, std::string("{\"tokens\": ") + list + "}\n");
    EXPECT_EQ(run.exit_code, 2) << list;
    EXPECT_THAT(run.err, HasSubstr("must be in [0, ")) << list;
  }
  const ProgramRun run = Tokenize({"--decode"}, "{\"tokens\": 1}\n");
  EXPECT_THAT(run.err, HasSubstr("tokens must be a list of integers, got 1"));
}

TEST(TokenizeTest, WhatCannotBeReadIsSaid) {
  const ScratchDirectory empty;
  EXPECT_THAT(RunEspalier({"tokenize", "-m", empty.path()}).err,
              HasSubstr("--model: " + empty.path() +
                        " has no tokenizer.model or tokenizer.json"));
  EXPECT_THAT(Tokenize({"--input", "/nowhere/in"}, "").err,
              HasSubstr("/nowhere/in"));
  EXPECT_THAT(Tokenize({"--decode", "--special"}, "").err,
              HasSubstr("--decode shows special tokens anyway"));
  EXPECT_EQ(Tokenize({"--decode", "--special"}, "").exit_code, 2);
}

}  // namespace
}  // namespace espalier::testing
