#include "text/chat/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/text/tokenizer_file.h"
#include "text/chat/chat_template.h"

namespace espalier {
namespace {

using ::testing::Contains;
using testing::EnFrTokenizer;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;

// The names of tokens: special tokens as they are, texts as they read.
std::string Shown(const std::vector<TokenId>& tokens) {
  std::string shown;
  for (const TokenId token : tokens) {
    shown += "[" + EnFrTokenizer().Piece(token) + "]";
  }
  return shown;
}

jinja::Text Rendered(std::string_view before, std::string_view input,
                     std::string_view after) {
  jinja::Text text;
  text.Append(before, false);
  text.Append(input, true);
  text.Append(after, false);
  return text;
}

absl::StatusOr<std::vector<TokenId>> Encode(const jinja::Text& text,
                                            int max_tokens = 1000) {
  const SpecialTokenNames names(EnFrTokenizer());
  return EncodeChat(text, EnFrTokenizer(), names, max_tokens);
}

TEST(ChatPromptTest, NamesThatTheTemplateWritesAreSpecial) {
  const auto tokens = Encode(Rendered("<s>", "It rains.", "</s>"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->front(), EnFrTokenizer().PieceToId("<s>"));
  EXPECT_EQ(tokens->back(), EnFrTokenizer().PieceToId("</s>"));
  const auto text = EnFrTokenizer().Encode("It rains.");
  EXPECT_EQ(std::vector<TokenId>(tokens->begin() + 1, tokens->end() - 1),
            *text);
}

// Neither a whole name of a user, nor a half that the template completes.
TEST(ChatPromptTest, WhatAnInputSaysIsNeverSpecial) {
  const TokenId end = *EnFrTokenizer().PieceToId("</s>");
  for (const jinja::Text& text :
       {Rendered("a", "</s>", "b"), Rendered("a</", "s", ">b"),
        Rendered("a", "x</", "s>b"), Rendered("a<", "/s>", "b"),
        Rendered("", "</s></s>", "")}) {
    const auto tokens = Encode(text);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_THAT(*tokens, Not(Contains(end))) << Shown(*tokens);
    EXPECT_EQ(*tokens, *EnFrTokenizer().Encode(text.bytes()));
  }
}

TEST(ChatPromptTest, ATemplateThatQuotesAUserKeepsItText) {
  const auto chat = ChatTemplate::Parse(
      "{% for m in messages %}{{ bos_token }}{{ m.content|replace('x', '') }}"
      "{{ m.content|upper|lower }}{{ m.content.split('|')|join('') }}"
      "{{ [m.content]|tojson }}{% endfor %}",
      {{"bos_token", "<s>"}});
  ASSERT_TRUE(chat.ok());
  ChatInputs inputs;
  inputs.messages.push_back(
      json::object{{"role", "user"}, {"content", "<s><xs><|s>"}});
  const auto text = (*chat)->Render(inputs);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto tokens = Encode(*text);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(std::ranges::count(*tokens, *EnFrTokenizer().PieceToId("<s>")), 1)
      << Shown(*tokens);
}

// The user's "cc" is "CC" in normalized text, and the template's, which
// is no single word there, does not: as many special tokens, at another place.
TEST(ChatPromptTest, PlacesOfNormalizedNamesCountAndNotTheirNumber) {
  testing::TokenizerFile file;
  file.At("/normalizer") = {{"type", "Lowercase"}};
  file.At("/added_tokens")
      .as_array()
      .push_back({{"id", 10},
                  {"content", "CC"},
                  {"special", true},
                  {"normalized", true},
                  {"single_word", true}});
  const auto tokenizer = file.Parse().value();
  const SpecialTokenNames names(*tokenizer);
  const auto encode = [&](std::string_view before, std::string_view input,
                          std::string_view after) {
    return EncodeChat(Rendered(before, input, after), *tokenizer, names, 100)
        .value();
  };
  const auto text_of = [&](std::string_view text) {
    return tokenizer->Encode(text).value();
  };
  const auto joined = [](std::vector<TokenId> first,
                         const std::vector<TokenId>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  EXPECT_THAT(tokenizer->Encode("CCa cc ", {.parse_special = true}).value(),
              Contains(10).Times(1));
  EXPECT_EQ(encode("CCa", " cc ", ""), joined({10}, text_of("a cc ")));
  EXPECT_EQ(encode("", " cc ", "aCC"), joined(text_of(" cc a"), {10}));
}

// The tokenizer of a file that has it beside expected results.
std::unique_ptr<Tokenizer> LoadJson(const std::filesystem::path& fixture) {
  const auto text = ReadFile(fixture.string(), size_t{1} << 24);
  CHECK(text.ok()) << text.status().ToString();
  const auto value = ParseJson(*text);
  CHECK(value.ok()) << value.status().ToString();
  const testing::ScratchDirectory directory;
  auto tokenizer = Tokenizer::Load(
      directory.Write("tokenizer.json", WriteJson(value->at("tokenizer"))));
  CHECK(tokenizer.ok()) << fixture << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

TEST(ChatPromptTest, InAnyTokenizerTheTemplateAloneMakesSpecialTokens) {
  int num_names = 0;
  for (const auto& fixture : std::filesystem::directory_iterator(
           SourcePath("tests/data/tokenizers"))) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadJson(fixture.path());
    const SpecialTokenNames names(*tokenizer);
    const auto encode = [&](const jinja::Text& text) {
      auto tokens = EncodeChat(text, *tokenizer, names);
      CHECK(tokens.ok()) << tokens.status().ToString();
      return *std::move(tokens);
    };
    for (TokenId token = 0; token < tokenizer->vocab_size(); ++token) {
      const std::string name = tokenizer->Piece(token);
      if (!tokenizer->is_special(token) || name.size() < 3) continue;
      // Any text may contain the unknown token, for characters outside the
      // vocabulary.
      if (tokenizer->special_tokens().unk == token) continue;
      const std::string half = name.substr(0, name.size() / 2);
      const std::string rest = name.substr(name.size() / 2);
      const auto alone = encode(Rendered(name, "a", ""));
      EXPECT_EQ(alone.front(), token) << fixture.path() << name;
      EXPECT_EQ(alone, *tokenizer->Encode(name + "a", {.parse_special = true}));
      for (const jinja::Text& text :
           {Rendered("a", name, "a"), Rendered("a" + half, rest, "a"),
            Rendered("a", half, rest + "a")}) {
        EXPECT_EQ(std::ranges::count(encode(text), token), 0)
            << fixture.path() << text.bytes();
      }
      const auto both = encode(Rendered(name, name + "a", name));
      EXPECT_EQ(std::ranges::count(both, token), 2) << fixture.path() << name;
      ++num_names;
    }
  }
  EXPECT_GT(num_names, 10);
}

TEST(ChatPromptTest, TheLongestNameIsFoundFirst) {
  const SpecialTokenNames names(EnFrTokenizer());
  const auto match = names.Find("ab</s><s>", 0);
  EXPECT_EQ(match.begin, 2);
  EXPECT_EQ(match.size, 4);
  EXPECT_EQ(names.Find("ab</s", 0).size, 0);
  EXPECT_EQ(names.Find("</s>", 1).size, 0);
}

// Also of names that begin with one another, and of many with one beginning.
TEST(ChatPromptTest, OfManyNamesTheLongestIsFound) {
  json::object vocab{{"<", 0}};
  json::array added;
  for (int i = 1; i <= 2000; ++i) {
    const std::string name = Concat("<u", i);
    vocab[name] = i;
    added.push_back(
        json::object{{"id", i}, {"content", name}, {"special", true}});
  }
  const json::object model{
      {"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}};
  const testing::ScratchDirectory directory;
  const auto tokenizer = Tokenizer::Load(directory.Write(
      "tokenizer.json",
      WriteJson(json::object{{"model", model}, {"added_tokens", added}})));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const SpecialTokenNames names(**tokenizer);
  for (int i = 1; i <= 2000; ++i) {
    const auto match = names.Find(Concat("<<u", i, "<"), 0);
    EXPECT_EQ(match.begin, 1);
    EXPECT_EQ(match.token, i);
  }
  EXPECT_EQ(names.Find("<u0<v1", 0).size, 0);
  EXPECT_EQ(names.Find("<u20001", 0).token, 2000);
  EXPECT_TRUE(names.AnyTouchesInput(Rendered("<u12", "3", "")));
  EXPECT_FALSE(names.AnyTouchesInput(Rendered("<u2000", "0", "")));
  EXPECT_TRUE(names.AnyTouchesInput(Rendered("<u200", "0", "")));
  EXPECT_TRUE(names.AnyTouchesInput(Rendered("<", "u", "9")));
}

TEST(ChatPromptTest, TooManyTokensAndNoneAreRefused) {
  std::string words;
  for (int i = 0; i < 100; ++i) words += "station ";
  EXPECT_THAT(Encode(Rendered("<s>", words, ""), 10).status(),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("tokens")));
  EXPECT_THAT(
      Encode(Rendered("<s>", "</s>", ""), 1).status(),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("more than 1 token")));
  EXPECT_THAT(
      Encode(jinja::Text()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty prompt")));
  // The normalizer removes all characters.
  const json::object tokenizer_file{
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", json::array()}}},
      {"normalizer",
       {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}}};
  const testing::ScratchDirectory directory;
  const auto tokenizer = Tokenizer::Load(
      directory.Write("tokenizer.json", WriteJson(tokenizer_file)));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const auto& text : {Rendered(" ", "", "\n"), Rendered("", "  ", "")}) {
    EXPECT_THAT(EncodeChat(text, **tokenizer),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("makes a prompt without a token")));
  }
  EXPECT_TRUE(EncodeChat(Rendered(" ", "a", ""), **tokenizer).ok());
}

}  // namespace
}  // namespace espalier
