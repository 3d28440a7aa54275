// Large texts and large files: nothing takes the square of their size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/tokenizer_file.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TokenizerFile;
using ::testing::HasSubstr;

constexpr size_t kTextBytes = 15'000'000;

std::unique_ptr<Tokenizer> FixtureTokenizer(const std::string& name) {
  const auto text = ReadFile(
      SourcePath("tests/data/tokenizers/" + name + ".json"), size_t{1} << 20);
  return JsonTokenizer::Parse(
             json::serialize(ParseJson(text.value())->at("tokenizer")), {})
      .value();
}

std::string Repeated(std::string_view part, size_t num_bytes) {
  std::string text;
  text.reserve(num_bytes + part.size());
  while (text.size() < num_bytes) text += part;
  return text;
}

// Tests a word without an end, spaces, and prose.
TEST(JsonTokenizerLimitsTest, ALongTextIsEncodedInOnePass) {
  for (const char* name : {"llama3", "sentencepiece_bpe", "unigram_nfkc"}) {
    const auto tokenizer = FixtureTokenizer(name);
    for (const std::string_view part : {"a", " ", "It is what it is. "}) {
      const std::string text =
          Repeated(part, Cases(kTextBytes / 3, kTextBytes / 50));
      const auto tokens = tokenizer->Encode(text);
      ASSERT_OK(tokens);
      EXPECT_LE(tokens->size(), text.size() + 1);
    }
  }
}

// Each piece of a template would cost the list of the special token it names.
TEST(JsonTokenizerLimitsTest, ATemplateOfManyPiecesIsReadInOnePass) {
  const auto with_pieces = [](int num_pieces, int num_ids) {
    TokenizerFile file;
    json::array pieces = {file.At("/post_processor/single/1")};
    pieces.resize(num_pieces, file.At("/post_processor/single/0"));
    pieces.front() = file.At("/post_processor/single/1");
    file.At("/post_processor/single") = std::move(pieces);
    file.At("/post_processor/special_tokens/<s>/ids") =
        json::array(num_ids, json::value(1));
    return file.Parse();
  };
  const auto most = with_pieces(65, 1024);
  ASSERT_OK(most);
  EXPECT_EQ((*most)->after_text().size(), 65536);
  EXPECT_THAT(with_pieces(66, 1024),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("post_processor.single must be at most 65536 "
                                 "tokens")));
  EXPECT_OK(with_pieces(100'000, 0));
  // 10^10 tokens, if all were made or looked at.
  EXPECT_THAT(with_pieces(100'000, 100'000),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("must be at most 65536 tokens")));
}

TEST(JsonTokenizerLimitsTest, ATextThatIsTooLongIsRefusedByItsBeginning) {
  for (const char* name : {"llama3", "metaspace_bpe", "unigram_charsmap"}) {
    const auto tokenizer = FixtureTokenizer(name);
    for (const std::string_view part : {"ab", "It is what it is. ", "é🎈"}) {
      const std::string text = Repeated(part, kTextBytes);
      EXPECT_THAT(tokenizer->Encode(text, {.max_tokens = 100}),
                  StatusIs(absl::StatusCode::kOutOfRange,
                           HasSubstr(" tokens, more than 100")));
    }
  }
}

TEST(JsonTokenizerLimitsTest, OnlyWhatIsLongerIsRefusedForItsLength) {
  for (const char* name : {"llama3", "sentencepiece_bpe", "unigram_nfkc"}) {
    const auto tokenizer = FixtureTokenizer(name);
    for (const std::string_view part : {"a", " ", "It is. ", "\n"}) {
      for (const size_t length : {1, 100, 1000, 10000}) {
        const std::string text = Repeated(part, length);
        const auto all = tokenizer->Encode(text).value();
        const auto limited = tokenizer->Encode(text, {.max_tokens = 20});
        if (limited.ok()) {
          EXPECT_EQ(*limited, all);
        } else {
          EXPECT_GT(all.size(), 20);
        }
      }
    }
  }
}

TEST(JsonTokenizerLimitsTest, ACatastrophicPatternEndsInAnError) {
  TokenizerFile file;
  file.At("/pre_tokenizer/pretokenizers/0/pattern") = {
      {"Regex", "(?:[ab]+)+[^ab]"}};
  const auto tokenizer = file.Parse({}, "models/m/tokenizer.json").value();
  EXPECT_OK(tokenizer->Encode("abcab"));
  EXPECT_THAT(
      tokenizer->Encode(Repeated("ab", 10000)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("models/m/tokenizer.json: "
                         "pre_tokenizer.pretokenizers[0].pattern.Regex: "
                         "pattern \"(?:[ab]+)+[^ab]\" takes more than the "
                         "11000000 steps that a text of 10000 bytes may")));
}

// Each match alone is cheap. All pieces, steps and parts between added tokens
// share one budget.
TEST(JsonTokenizerLimitsTest, TheStepsOfAPatternAreThoseOfTheWholeText) {
  TokenizerFile file;
  file.At("/pre_tokenizer/pretokenizers/0/pattern") = {{"Regex", "a*b|a"}};
  const auto tokenizer = file.Parse().value();
  EXPECT_OK(tokenizer->Encode(Repeated("a", 1000)));
  const std::string part = Repeated("a", 2500);
  std::string text = part;
  for (int i = 0; i < 60; ++i) text += "<s>" + part;
  EXPECT_OK(tokenizer->Encode(part));
  for (const std::string& hostile : {Repeated("a", 80'000), text}) {
    EXPECT_THAT(tokenizer->Encode(hostile, {.parse_special = true}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("takes more than the ")));
  }
}

TEST(JsonTokenizerLimitsTest, AMillionAddedTokensAreFound) {
  const int num_added = testing::Cases(1'000'000, 100'000);
  std::string added;
  for (int i = 0; i < num_added; ++i) {
    added += "{\"id\": " + std::to_string(100 + i) + ", \"content\": \"<t" +
             std::to_string(i) + ">\", \"normalized\": false},";
  }
  added.pop_back();
  const auto tokenizer =
      JsonTokenizer::Parse("{\"added_tokens\": [" + added +
                               "], \"model\": {\"type\": \"BPE\", \"vocab\": "
                               "{\"a\": 0}, \"merges\": []}}",
                           {})
          .value();
  EXPECT_EQ(tokenizer->vocab_size(), 100 + num_added);
  const auto tokens = tokenizer
                          ->Encode("<t0>a<t" + std::to_string(num_added - 1) +
                                   ">" + Repeated("<t", num_added))
                          .value();
  ASSERT_GE(tokens.size(), 3);
  EXPECT_EQ(tokens[0], 100);
  EXPECT_EQ(tokens[1], 0);
  EXPECT_EQ(tokens[2], 100 + num_added - 1);
}

// a, aa, aaa, ...: each merge joins one more.
TEST(JsonTokenizerLimitsTest, AChainOfMergesIsFollowedToItsEnd) {
  constexpr int kNumMerges = 4000;
  std::string vocab = "\"a\": 0", merges, piece = "a";
  for (int i = 1; i <= kNumMerges; ++i) {
    merges += (i > 1 ? ", [\"" : "[\"") + piece + "\", \"a\"]";
    piece += 'a';
    vocab += ", \"" + piece + "\": " + std::to_string(i);
  }
  const auto tokenizer =
      JsonTokenizer::Parse("{\"model\": {\"type\": \"BPE\", \"vocab\": {" +
                               vocab + "}, \"merges\": [" + merges + "]}}",
                           {})
          .value();
  // Pairs are joined first, everywhere; then nothing joins pairs.
  EXPECT_EQ(tokenizer->Encode(std::string(1'000'000, 'a')).value(),
            std::vector<TokenId>(500'000, 1));
  EXPECT_EQ(tokenizer->Encode("aaa").value(), std::vector<TokenId>({2}));
}

// As many merges as the largest vocabularies have, of pieces of two letters.
TEST(JsonTokenizerLimitsTest, AHundredThousandMergesAreRead) {
  std::string vocab, merges;
  const auto letter = [](int i) {
    std::string text;
    const int code = 0x4E00 + i;
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
    return text;
  };
  constexpr int kNumLetters = 320;
  for (int i = 0; i < kNumLetters; ++i) {
    vocab += "\"" + letter(i) + "\": " + std::to_string(i) + ",";
  }
  int id = kNumLetters;
  for (int i = 0; i < kNumLetters; ++i) {
    for (int j = 0; j < kNumLetters; ++j, ++id) {
      vocab += "\"" + letter(i) + letter(j) + "\": " + std::to_string(id) + ",";
      merges += "\"" + letter(i) + " " + letter(j) + "\",";
    }
  }
  vocab.pop_back();
  merges.pop_back();
  const auto tokenizer =
      JsonTokenizer::Parse("{\"model\": {\"type\": \"BPE\", \"vocab\": {" +
                               vocab + "}, \"merges\": [" + merges + "]}}",
                           {})
          .value();
  EXPECT_EQ(tokenizer->vocab_size(), kNumLetters * (kNumLetters + 1));
  EXPECT_EQ(tokenizer->Encode(letter(1) + letter(2) + letter(3)).value(),
            std::vector<TokenId>({kNumLetters + kNumLetters + 2, 3}));
}

}  // namespace
}  // namespace espalier
