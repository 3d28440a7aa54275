#include "request/token_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constrain/regex_language.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;

// Each directory of the test data and of the embedded models with a tokenizer.
std::vector<std::string> TokenizerDirectories() {
  std::vector<std::string> directories;
  for (const char* const root :
       {"tests/data/text_models", "tests/data/tokenizers", "tests/data/chat",
        "models"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(SourcePath(root))) {
      if (!entry.is_directory()) continue;
      const auto file = Tokenizer::FileOf(entry.path());
      if (file.ok() && file->has_value()) directories.push_back(entry.path());
    }
  }
  return directories;
}

std::string WithoutSpacesAtTheEnd(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

TEST(TokenBytesTest, BytesOfTokensAreTheTextThatTheyDecodeTo) {
  std::mt19937_64 random(1);
  const std::vector<std::string> directories = TokenizerDirectories();
  ASSERT_GE(directories.size(), 7);
  for (const std::string& directory : directories) {
    SCOPED_TRACE(directory);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer,
                         Tokenizer::LoadDirectory(directory));
    const TokenVocabulary vocabulary = TokenBytesOf(*tokenizer);
    const TokenTrie& first =
        vocabulary.first ? *vocabulary.first : vocabulary.inside;
    const bool is_trimmed =
        tokenizer->spellings().opening_spaces() == OpeningSpaces::kTrimmed;
    int num_compared = 0;
    // Tokens of ByT5 are bytes, and few random ones are UTF-8.
    for (int i = 0; i < Cases(4000, 500); ++i) {
      std::vector<TokenId> tokens;
      std::string bytes;
      bool is_first = true;
      for (int t = 0; t < 1 + i % 5; ++t) {
        const TokenId token =
            static_cast<TokenId>(random() % tokenizer->vocab_size());
        const std::string_view inside = vocabulary.inside.BytesOf(token);
        const std::string_view added = is_first ? first.BytesOf(token) : inside;
        // A dropped space may come first.
        if (inside.empty() || (added.empty() && t > 0)) break;
        is_first = added.empty() && vocabulary.drops_all_spaces;
        tokens.push_back(token);
        bytes += added;
      }
      if (tokens.empty() || !IsUtf8(bytes)) continue;
      ASSERT_OK_AND_ASSIGN(const std::string text, tokenizer->Decode(tokens));
      ASSERT_EQ(is_trimmed ? WithoutSpacesAtTheEnd(bytes) : bytes, text)
          << ::testing::PrintToString(tokens);
      ++num_compared;
    }
    EXPECT_GT(num_compared, 50);
  }
}

// Models have more ids than their tokenizers, and each may end an output.
TEST(TokenBytesTest, IdsThatTheTokenizerLacksAddNothing) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer,
                       Tokenizer::LoadDirectory(SourcePath("models/en-fr")));
  const int vocab_size = tokenizer->vocab_size();
  const TokenVocabulary vocabulary =
      TokenBytesOf(*tokenizer, {}, vocab_size + 3);
  ASSERT_EQ(vocabulary.inside.vocab_size(), vocab_size + 3);
  EXPECT_EQ(vocabulary.inside.BytesOf(vocab_size + 2), "");
  EXPECT_EQ(vocabulary.first->BytesOf(vocab_size + 2), "");
  EXPECT_EQ(vocabulary.inside.BytesOf(vocab_size - 1),
            TokenBytesOf(*tokenizer).inside.BytesOf(vocab_size - 1));
  EXPECT_EQ(TokenBytesOf(*tokenizer, {}, 7).inside.vocab_size(), 7);
}

// Special tokens are illegal at any place, also in the language of all texts.
TEST(TokenBytesTest, SpecialTokensAreIllegal) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer,
                       Tokenizer::LoadDirectory(SourcePath("models/en-fr")));
  auto all = CompileRegex("[\\s\\S]*");
  ASSERT_OK(all);
  ASSERT_OK_AND_ASSIGN(
      const TokenConstraint constraint,
      TokenConstraint::Make(
          std::make_shared<const ByteAutomaton>(*std::move(all)),
          std::make_shared<const TokenVocabulary>(TokenBytesOf(*tokenizer))));
  for (TokenId token = 0; token < tokenizer->vocab_size(); ++token) {
    if (!tokenizer->is_special(token)) continue;
    EXPECT_EQ(constraint.Advance(constraint.start(), token),
              TokenConstraint::kNone);
    EXPECT_EQ(constraint.Advance(0, token), TokenConstraint::kNone);
  }
}

}  // namespace
}  // namespace espalier
