// espalier tokenize: texts as tokens, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(TokenizeTest, AModelThatIsNoDirectoryIsNamed) {
  const ScratchDirectory scratch;
  const auto error = [](const std::string& model) {
    return RunEspalier({"tokenize", "-m", model, "It rains."}).err;
  };
  EXPECT_THAT(error("owner/name"), HasSubstr("hf download owner/name"));
  EXPECT_THAT(error(scratch.Write("m.txt", "")), HasSubstr("m.txt is a file"));
}

TEST(TokenizeTest, InputWithoutLinesHasANote) {
  const ProgramRun run = Tokenize({}, "\n");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "espalier: note: no lines in stdin\n");
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

TEST(TokenizeTest, ArgumentsAreTextsOrTheIdsOfOneList) {
  const ProgramRun texts = Tokenize({"It rains.", "\"</s>\n"}, "");
  EXPECT_EQ(texts.exit_code, 0) << texts.err;
  EXPECT_EQ(texts.out, Tokenize({},
                                "{\"text\": \"It rains.\"}\n"
                                "{\"text\": \"\\\"</s>\\n\"}\n")
                           .out);
  EXPECT_EQ(Tokenize({"-"}, "{\"text\": \"a\"}\n").out,
            Tokenize({"a"}, "").out);
  std::vector<std::string> ids = {"--decode"};
  for (const json::value& id : TokensOf("It rains.")) {
    ids.push_back(std::to_string(id.as_int64()));
  }
  EXPECT_EQ(Tokenize(ids, "").out, "{\"text\": \"It rains.\"}\n");
}

TEST(TokenizeTest, ArgumentsThatAreWrongAreNamed) {
  for (const char* id : {"", "x", "7 8", "7.0", "99999999999999999999"}) {
    const ProgramRun run = Tokenize({"--decode", "7", id}, "");
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr(Concat("an argument must be a token id, got "
                                          "\"",
                                          id, "\"")));
  }
  EXPECT_THAT(Tokenize({"--decode", "6000"}, "").err,
              HasSubstr("arguments:1: tokens[0] must be an integer in [0, 5999]"
                        ", got 6000"));
  EXPECT_THAT(Tokenize({"a\xFF"}, "").err, HasSubstr("text 1 is not UTF-8"));
  EXPECT_THAT(Tokenize({"a", "-f", "in"}, "").err,
              HasSubstr("give texts or --input, not both"));
}

TEST(TokenizeTest, AnObjectHasAThousandMembersAtMost) {
  const auto error_of = [](int num_members) {
    std::string members;
    for (int i = 0; i < num_members; ++i) {
      members += Concat(i > 0 ? ", " : "", "\"", i, "\": 0");
    }
    const ProgramRun run =
        Tokenize({}, Concat("{\"text\": {", members, "}}\n"));
    return std::string(ParseLines(run.out).at(0).at("error").as_string());
  };
  EXPECT_THAT(error_of(1024), StartsWith("text must be a string, got {"));
  EXPECT_THAT(error_of(1025),
              StartsWith("a line must have no object of more than 1024 "
                         "members, got one of 1025"));
}

// A model whose chat template shows its parts.
class TokenizeChatTest : public ::testing::Test {
 protected:
  TokenizeChatTest() {
    for (const char* file : {"config.json", "tokenizer.model"}) {
      std::filesystem::create_symlink(ModelDirectory("en-fr") + "/" + file,
                                      model_.path(file));
    }
    model_.Write("chat_template.jinja",
                 "{{ bos_token }}{% for m in messages %}{{ m.role }}: "
                 "{{ m.content }}{{ eos_token }}{% endfor %}");
  }

  ProgramRun Run(std::vector<std::string> args, const std::string& input) {
    args.insert(args.begin(), {"tokenize", "-m", model_.path()});
    return RunEspalier(args, input);
  }

  const ScratchDirectory model_;
};

TEST_F(TokenizeChatTest, AConversationBecomesThePromptsTokens) {
  const ProgramRun run =
      Run({"--chat", "--rendered"},
          "{\"messages\": [{\"role\": \"user\", \"content\": \"It rains.\"}]}\n"
          "{\"text\": \"It rains.\"}\n"
          "{\"text\": \"</s>\"}\n");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const auto lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_EQ(lines[0].at("rendered"), "<s>user: It rains.</s>");
  const json::array tokens = lines[0].at("tokens").as_array();
  const json::array bos = TokensOf("<s>", {"--special"});
  const json::array eos = TokensOf("</s>", {"--special"});
  EXPECT_EQ(tokens.front(), bos[0]);
  EXPECT_EQ(tokens.back(), eos[0]);
  // A user's text never becomes a special token.
  EXPECT_EQ(lines[2].at("rendered"), "<s>user: </s></s>");
  const json::array quoted = lines[2].at("tokens").as_array();
  EXPECT_EQ(std::ranges::count(quoted, eos[0]), 1);
  const ProgramRun plain = Run({"--chat"}, "{\"text\": \"It rains.\"}\n");
  EXPECT_EQ(plain.out, WriteJson(json::object{{"tokens", tokens}}) + "\n");
}

TEST_F(TokenizeChatTest, WhatIsNoConversationIsAnsweredInItsPlace) {
  const ProgramRun run = Run({"--chat"},
                             "{\"messages\": []}\n"
                             "{\"messages\": [{\"content\": \"a\"}]}\n"
                             "{\"messages\": 5}\n"
                             "{\"text\": 5}\n"
                             "{\"tokens\": [5]}\n"
                             "{\"text\": \"a\", \"messages\": []}\n");
  EXPECT_EQ(run.exit_code, 2);
  const std::vector<std::string> lines = SplitLines(run.out);
  ASSERT_EQ(lines.size(), 6);
  EXPECT_THAT(lines[0], HasSubstr("messages must not be empty, got []"));
  EXPECT_THAT(lines[1], HasSubstr("messages[0].role must be a string"));
  EXPECT_THAT(lines[2], HasSubstr("messages must be a list, got 5"));
  EXPECT_THAT(lines[3], HasSubstr("text must be a string, got 5"));
  EXPECT_THAT(lines[4], HasSubstr("unknown field \\\"tokens\\\"; the field is "
                                  "\\\"messages\\\""));
  EXPECT_THAT(lines[5], HasSubstr("unknown field \\\"messages\\\""));
}

TEST_F(TokenizeChatTest, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(Run({"--chat", "--decode"}, "").err,
            "espalier: --chat and --decode exclude each other\n");
  EXPECT_EQ(Run({"--chat", "--special"}, "").err,
            "espalier: --chat and --special exclude each other\n");
  EXPECT_EQ(Run({"--rendered"}, "").err, "espalier: --rendered needs --chat\n");
  const ProgramRun run = Tokenize({"--chat"}, "");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--chat needs a chat template, and "));
}

// Output lines are those of the other input lines, but errors count blank
// lines, too.
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
    EXPECT_THAT(run.err, HasSubstr("must be an integer in [0, ")) << list;
  }
  const ProgramRun run = Tokenize({"--decode"}, "{\"tokens\": 1}\n");
  EXPECT_THAT(run.err, HasSubstr("tokens must be a list of integers, got 1"));
}

TEST(TokenizeTest, PiecesStandBesideTheirTokens) {
  const std::string text = "{\"text\": \"It rains.</s>\"}\n";
  const ProgramRun plain = Tokenize({"--special"}, text);
  const ProgramRun run = Tokenize({"--special", "--pieces"}, text);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const json::value line = ParseLines(run.out)[0];
  EXPECT_EQ(line.at("tokens"), ParseLines(plain.out)[0].at("tokens"));
  const json::array& pieces = line.at("pieces").as_array();
  ASSERT_EQ(pieces.size(), line.at("tokens").as_array().size());
  EXPECT_EQ(pieces.front(), json::value("▁It"));
  EXPECT_EQ(pieces.back(), json::value("</s>"));
  EXPECT_THAT(Tokenize({"--decode", "--pieces"}, "").err,
              HasSubstr("--pieces shows what a text becomes"));
}

TEST(TokenizeTest, APlainTextIsToldWhatALineIs) {
  EXPECT_THAT(Tokenize({}, "It rains.\n").err,
              HasSubstr("not JSON at byte 0: syntax error; a line is "
                        "{\"text\": \"It rains.\"}, for instance\n"));
  EXPECT_THAT(Tokenize({"--decode"}, "7 8\n").err,
              HasSubstr("; a line is {\"tokens\": [7, 8]}, for instance\n"));
}

TEST(TokenizeTest, AFieldOfAnotherModeNamesItsOption) {
  const auto error = [](std::vector<std::string> options,
                        const std::string& line) {
    return Tokenize(std::move(options), line + "\n").err;
  };
  EXPECT_THAT(error({}, R"({"tokens": [7]})"),
              HasSubstr("unknown field \"tokens\"; --decode takes tokens\n"));
  EXPECT_THAT(error({}, R"({"messages": []})"),
              HasSubstr("unknown field \"messages\"; --chat takes messages\n"));
  EXPECT_THAT(error({"--decode"}, R"({"text": "a"})"),
              HasSubstr("unknown field \"text\"; a text is taken without "
                        "--decode\n"));
  EXPECT_THAT(error({"--decode"}, R"({"token": [7]})"),
              HasSubstr("unknown field \"token\"; the field is \"tokens\"\n"));
}

TEST(TokenizeTest, WhatCannotBeReadIsSaid) {
  const ScratchDirectory empty;
  EXPECT_THAT(RunEspalier({"tokenize", "-m", empty.path()}).err,
              HasSubstr("espalier: -m: " + empty.path() +
                        " has no source.spm, tokenizer.json, "
                        "tokenizer.model, spiece.model, "
                        "sentencepiece.bpe.model or merges.txt"));
  EXPECT_THAT(Tokenize({"--input", "/nowhere/in"}, "").err,
              HasSubstr("/nowhere/in"));
  EXPECT_THAT(Tokenize({"--decode", "--special"}, "").err,
              HasSubstr("--decode shows special tokens anyway"));
  EXPECT_EQ(Tokenize({"--decode", "--special"}, "").exit_code, 2);
}

}  // namespace
}  // namespace espalier::testing
