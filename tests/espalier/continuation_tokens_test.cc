// Tokens of continuations: with those of their prompt they spell both texts and
// nothing else, whatever the tokenizer, and are those of the whole text where
// that begins as the prompt does.
#include "espalier/continuation_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

using Tokens = std::vector<TokenId>;

// By the names of their files.
std::vector<std::pair<std::string, std::shared_ptr<const Tokenizer>>>
AllTokenizers() {
  std::vector<std::pair<std::string, std::shared_ptr<const Tokenizer>>> all;
  all.emplace_back("en-fr", SharedEnFrTokenizer());
  for (const std::string name :
       {"models/en-fr-marian", "tests/data/text_models/bart",
        "tests/data/text_models/t5", "tests/data/text_models/marian",
        "tests/data/text_models/marian_bytes"}) {
    auto tokenizer = Tokenizer::LoadDirectory(SourcePath(name));
    EXPECT_OK(tokenizer);
    all.emplace_back(name, *std::move(tokenizer));
  }
  for (const auto& entry : std::filesystem::directory_iterator(
           SourcePath("tests/data/tokenizers"))) {
    const json::value file =
        ParseJson(ReadFile(entry.path(), size_t{1} << 20).value()).value();
    auto tokenizer = JsonTokenizer::Parse(WriteJson(file.at("tokenizer")), {});
    EXPECT_OK(tokenizer);
    all.emplace_back(entry.path().filename(), *std::move(tokenizer));
  }
  return all;
}

Tokens TokensOf(const ContinuationContext& context, const std::string& text) {
  const auto all = ContinuationTokens(context, {text});
  EXPECT_OK(all);
  if (!all.ok()) return {};
  return Tokens(all->at(0).begin(), all->at(0).end());
}

Tokens Joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

bool BeginsWith(const Tokens& whole, const Tokens& before) {
  return whole.size() > before.size() &&
         std::equal(before.begin(), before.end(), whole.begin());
}

bool HasUnknown(const Tokenizer& tokenizer, const Tokens& tokens) {
  const std::optional<TokenId> unknown = tokenizer.special_tokens().unk;
  return unknown && std::ranges::find(tokens, *unknown) != tokens.end();
}

// Cut from sentences, within words as well.
std::string RandomText(std::mt19937& random, size_t max_parts) {
  static constexpr std::string_view kParts[] = {
      "the", " sta", "tion", ".", " ",      "un",    "able",
      "re",  " 1",   "23",   "?", " it",    "in",    " O\u00f9",
      "la",  "gar",  "e",    "s", "\u00e9", "\u4e2d"};
  std::uniform_int_distribution<size_t> part(0, std::size(kParts) - 1);
  std::uniform_int_distribution<size_t> count(1, max_parts);
  std::string text;
  for (size_t n = count(random); n > 0; --n) text += kParts[part(random)];
  return text;
}

TEST(ContinuationTokensTest, TheySpellThePromptsTextAndTheirOwn) {
  std::mt19937 random(5);
  int num_within = 0;
  for (const auto& [name, tokenizer] : AllTokenizers()) {
    for (int i = 0; i < Cases(300, 30); ++i) {
      const std::string prompt = "a" + RandomText(random, 5);
      const std::string text = RandomText(random, 4) + "e";
      const Tokens before = tokenizer->Encode(prompt).value();
      const Tokens whole = tokenizer->Encode(prompt + text).value();
      const Tokens tokens =
          TokensOf({.tokenizer = tokenizer.get(), .prompt = prompt}, text);
      if (BeginsWith(whole, before)) {
        EXPECT_EQ(Joined(before, tokens), whole)
            << name << ": " << prompt << "|" << text;
      } else {
        ++num_within;
      }
      // One unknown token may stand for characters on both sides.
      if (HasUnknown(*tokenizer, whole)) continue;
      EXPECT_EQ(tokenizer->Decode(Joined(before, tokens)).value(),
                tokenizer->Decode(whole).value())
          << name << ": " << prompt << "|" << text;
    }
  }
  EXPECT_GT(num_within, Cases(100, 5));
}

TEST(ContinuationTokensTest, OutputsContinueADecoderPrompt) {
  const auto loaded =
      Tokenizer::LoadDirectory(SourcePath("models/en-fr-marian"));
  ASSERT_OK(loaded);
  const Tokenizer& tokenizer = **loaded;
  std::mt19937 random(6);
  for (int i = 0; i < Cases(300, 30); ++i) {
    const std::string prompt = "a" + RandomText(random, 5);
    const std::string text = RandomText(random, 4) + "e";
    const Tokens before = tokenizer.EncodeOutput(prompt).value();
    const Tokens whole = tokenizer.EncodeOutput(prompt + text).value();
    const Tokens tokens = TokensOf(
        {.tokenizer = &tokenizer, .is_output = true, .decoder_prompt = prompt},
        text);
    EXPECT_EQ(tokenizer.Decode(Joined(before, tokens)).value(),
              tokenizer.Decode(whole).value())
        << prompt << "|" << text;
  }
}

TEST(ContinuationTokensTest, NoSpaceOpensTheRestOfAWord) {
  const Tokenizer& tokenizer = EnFrTokenizer();
  const auto pieces = [&](const std::string& prompt, const std::string& text) {
    std::string all;
    for (const TokenId token :
         TokensOf({.tokenizer = &tokenizer, .prompt = prompt}, text)) {
      all += tokenizer.Piece(token) + " ";
    }
    return all;
  };
  EXPECT_EQ(pieces("The sta", "tion."), "tion . ");
  EXPECT_EQ(pieces("un", "able"), "able ");
  EXPECT_EQ(pieces("un", " able"), "\u2581able ");
  EXPECT_EQ(pieces("", "able"), "\u2581able ");
}

}  // namespace
}  // namespace espalier::testing
