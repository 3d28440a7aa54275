#include "request/bad_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/fake_tokenizer_model.h"
#include "tests/text/test_tokenizer.h"
#include "tests/text/tokenizer_file.h"

namespace espalier::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using TokenIds = std::vector<int64_t>;

TokenIds Encode(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> tokens = tokenizer.Encode(text).value();
  return {tokens.begin(), tokens.end()};
}

absl::StatusOr<std::vector<TokenIds>> Resolve(const Tokenizer& tokenizer,
                                              std::vector<std::string> words) {
  GenerationParams params;
  params.bad_words = std::move(words);
  RETURN_IF_ERROR(ResolveBadWords(&tokenizer, &params));
  EXPECT_THAT(params.bad_words, IsEmpty());
  return params.bad_words_ids.items();
}

// One of each kind: byte-level BPE, BPE and Unigram with metaspaces, with a
// space in front of every text and without; SentencePiece.
std::map<std::string, std::shared_ptr<const Tokenizer>> AllTokenizers() {
  std::map<std::string, std::shared_ptr<const Tokenizer>> all;
  for (const auto& entry : std::filesystem::directory_iterator(
           SourcePath("tests/data/tokenizers"))) {
    const json::value file =
        ParseJson(ReadFile(entry.path(), size_t{1} << 20).value()).value();
    all[entry.path().filename()] =
        JsonTokenizer::Parse(json::serialize(file.at("tokenizer")), {}).value();
  }
  FakeTokenizerModel model;
  model.pieces = {{"<unk>", PieceType::kUnknown}, {"▁"}, {"▁ab"}, {"a"}, {"b"}};
  for (const bool has_dummy_prefix : {false, true}) {
    model.add_dummy_prefix = has_dummy_prefix;
    model.remove_extra_whitespaces = has_dummy_prefix;
    all[has_dummy_prefix ? "prefixed.model" : "bare.model"] =
        model.Load().value();
  }
  all["en-fr"] = SharedEnFrTokenizer();
  return all;
}

bool EndsIn(const TokenIds& tokens, const TokenIds& ending) {
  return tokens.size() >= ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), tokens.rbegin());
}

constexpr const char* kWords[] = {"a",     "the",   "ab",  "New York", "damn",
                                  "hello", "naïve", "été", "1999",     "don't",
                                  "\n",    "日本",  "a b", "end."};

// Calls `check` with both forms of each word by each tokenizer, and with what
// is banned for the word.
void ForEachWord(
    const std::function<void(const TokenIds& first, const TokenIds& after_space,
                             const std::vector<TokenIds>& banned)>& check) {
  for (const auto& [name, tokenizer] : AllTokenizers()) {
    for (const std::string word : kWords) {
      const TokenIds first = Encode(*tokenizer, word);
      if (first.empty()) continue;
      SCOPED_TRACE(Concat(name, ": ", word));
      ASSERT_OK_AND_ASSIGN(const auto banned, Resolve(*tokenizer, {word}));
      check(first, Encode(*tokenizer, " " + word), banned);
    }
  }
}

TEST(BadWordsTest, AWordWithATokenThatTheModelLacksIsNamed) {
  const auto tokenizer = TokenizerFile().Parse().value();
  tokenizer->SetModelVocabSize(9);
  EXPECT_OK(Resolve(*tokenizer, {"abc"}));
  EXPECT_THAT(
      Resolve(*tokenizer, {"abc", "<tool>"}),
      StatusIs(
          kInvalid,
          "bad_words[1]: the text has \"<tool>\", token 9, which the model "
          "lacks: its vocabulary has 9 tokens"));
}

TEST(BadWordsTest, BothFormsOfAWordAreBannedByAnyTokenizer) {
  ForEachWord([](const TokenIds& first, const TokenIds& after_space,
                 const std::vector<TokenIds>& banned) {
    const auto is_banned = [&](const TokenIds& form) {
      return std::ranges::any_of(
          banned, [&](const TokenIds& ban) { return EndsIn(form, ban); });
    };
    EXPECT_TRUE(is_banned(first));
    EXPECT_TRUE(is_banned(after_space));
    // Nothing else is.
    for (const TokenIds& ban : banned) {
      EXPECT_THAT(ban, AnyOf(first, after_space));
    }
  });
}

// As vLLM's SamplingParams.update_from_tokenizer decides.
TEST(BadWordsTest, WhatVllmBansIsBanned) {
  ForEachWord([](const TokenIds& first, const TokenIds& after_space,
                 const std::vector<TokenIds>& banned) {
    EXPECT_THAT(banned, Contains(first));
    if (after_space.front() != first.front() &&
        after_space.size() == first.size()) {
      EXPECT_THAT(banned, Contains(after_space));
    }
  });
}

// BPE over "a", "b", "c" without a space in front of texts.
std::unique_ptr<Tokenizer> Unprefixed(TokenizerFile file = {}) {
  file.At("/pre_tokenizer/pretokenizers/1/prepend_scheme") = "never";
  file.At("/decoder/decoders/0/prepend_scheme") = "never";
  json::object& vocabulary = file.At("/model/vocab").as_object();
  vocabulary["▁b"] = 10;
  vocabulary["▁bc"] = 11;
  json::array& merges = file.At("/model/merges").as_array();
  merges.push_back({"▁", "b"});
  merges.push_back({"▁b", "c"});
  return file.Parse().value();
}

TEST(BadWordsTest, TheFormBehindASpaceIsLeftOutWhereTheOtherBansIt) {
  const auto tokenizer = Unprefixed();
  const auto resolve = [&](const std::string& word) {
    return Resolve(*tokenizer, {word}).value();
  };
  // Another token; fewer of them.
  EXPECT_THAT(resolve("abc"), ElementsAre(ElementsAre(7), ElementsAre(8)));
  EXPECT_THAT(resolve("bc"), ElementsAre(ElementsAre(4, 5), ElementsAre(11)));
  // The space by itself.
  EXPECT_THAT(resolve("ab"), ElementsAre(ElementsAre(6)));
  EXPECT_THAT(resolve("c"), ElementsAre(ElementsAre(5)));
  // Spaces in front are dropped, others are not.
  EXPECT_THAT(resolve("  abc"), ElementsAre(ElementsAre(7), ElementsAre(8)));
  EXPECT_THAT(resolve("c abc"), ElementsAre(ElementsAre(5, 8)));
  // A SentencePiece model puts a space in front of both.
  EXPECT_THAT(Resolve(EnFrTokenizer(), {"gare"}).value(),
              ElementsAre(Encode(EnFrTokenizer(), "gare")));
}

// The pieces of a Marian model's translations, not of its sources.
TEST(BadWordsTest, WordsAreThoseThatAModelWrites) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      Tokenizer::LoadDirectory(SourcePath("tests/data/text_models/marian")));
  ASSERT_OK_AND_ASSIGN(const auto banned, Resolve(*tokenizer, {"are"}));
  EXPECT_THAT(Encode(*tokenizer, "are"), ElementsAre(29, 31));
  EXPECT_THAT(banned, ElementsAre(ElementsAre(6, 11, 12, 7)));
}

TEST(BadWordsTest, SpecialTokensAreNoneInWords) {
  const auto tokenizer = Unprefixed();
  ASSERT_OK_AND_ASSIGN(const auto banned, Resolve(*tokenizer, {"<s>ab"}));
  for (const TokenIds& form : banned) EXPECT_NE(form.front(), 1);
}

TEST(BadWordsTest, WordsComeBehindTheIdsThatWereGiven) {
  GenerationParams params;
  params.bad_words_ids = {{9}};
  params.bad_words = {"ab", "abc"};
  const auto tokenizer = Unprefixed();
  ASSERT_OK(ResolveBadWords(tokenizer.get(), &params));
  EXPECT_THAT(params.bad_words_ids,
              ElementsAre(ElementsAre(9), ElementsAre(6), ElementsAre(7),
                          ElementsAre(8)));
}

TEST(BadWordsTest, WrongWordsAreNamedAndLeaveTheParamsAsTheyWere) {
  const auto tokenizer = Unprefixed();
  const auto error = [&](std::vector<std::string> words) {
    GenerationParams params;
    params.bad_words = std::move(words);
    params.bad_words_ids = {{9}};
    const GenerationParams before = params;
    const absl::Status status = ResolveBadWords(tokenizer.get(), &params);
    EXPECT_EQ(params, before);
    EXPECT_EQ(status.code(), kInvalid);
    return Message(status);
  };
  EXPECT_EQ(error({"ab", ""}), "bad_words[1] must not be empty, got \"\"");
  EXPECT_EQ(error({"   "}),
            "bad_words[0] must not be spaces alone, got \"   \"");
  EXPECT_EQ(error({"ab", "\xff"}), "bad_words[1] is not UTF-8");
  EXPECT_EQ(error(std::vector<std::string>(4097, "a")),
            "bad_words must have at most 4096 words, got 4097");
  EXPECT_EQ(error({"a", std::string(65536, 'b')}),
            "bad_words must have at most 65536 bytes together, got 65537");
  // As many are taken.
  EXPECT_OK(Resolve(*tokenizer, std::vector<std::string>(4096, "a")));
  EXPECT_OK(Resolve(*tokenizer, {std::string(65536, 'b')}));
}

TEST(BadWordsTest, AWordWithoutTokensIsNamed) {
  TokenizerFile file;
  file.At("/model/unk_token") = nullptr;
  const auto tokenizer = Unprefixed(std::move(file));
  ASSERT_THAT(Encode(*tokenizer, "z"), IsEmpty());
  ASSERT_THAT(Encode(*tokenizer, " z"), ElementsAre(2));
  EXPECT_THAT(Resolve(*tokenizer, {"ab", "z"}),
              StatusIs(kInvalid,
                       "bad_words[1] must have a token in the model's "
                       "vocabulary, got \"z\""));
}

TEST(BadWordsTest, RequestsOfOneListShareItsTokens) {
  const auto all = AllTokenizers();
  GenerationParams call;
  call.bad_words = {"damn", "ab"};
  call.bad_words_ids = {{7, 8}};
  std::vector<int64_t> lists;
  for (const auto& [name, tokenizer] : all) {
    GenerationParams first = call, second = call;
    ASSERT_OK(ResolveBadWords(tokenizer.get(), &first));
    ASSERT_OK(ResolveBadWords(tokenizer.get(), &second));
    EXPECT_EQ(first.bad_words_ids.id(), second.bad_words_ids.id()) << name;
    EXPECT_EQ(first.bad_words_ids.front(), (TokenIds{7, 8})) << name;
    // Another tokenizer's are others.
    EXPECT_THAT(lists, Not(Contains(first.bad_words_ids.id()))) << name;
    lists.push_back(first.bad_words_ids.id());
  }
}

TEST(BadWordsTest, WithoutATokenizerTheyAreRefused) {
  GenerationParams params;
  EXPECT_OK(ResolveBadWords(nullptr, &params));
  params.bad_words = {"damn", "ab"};
  EXPECT_THAT(ResolveBadWords(nullptr, &params),
              StatusIs(kInvalid,
                       "bad_words must be empty without a tokenizer, which "
                       "makes bad_words_ids of it, got \"damn\""));
}

}  // namespace
}  // namespace espalier::testing
