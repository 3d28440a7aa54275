// Words that are banned by their text are as if banned by their tokens,
// however tokens are chosen, and do not come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/generator.h"
#include "request/json/result_json.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// Returns the token ids of `words` for the embedded translator, whose tokenizer
// has one form of each.
std::vector<std::vector<int64_t>> IdsOf(const std::vector<std::string>& words) {
  std::vector<std::vector<int64_t>> ids;
  for (const std::string& word : words) {
    const std::vector<TokenId> tokens = EnFrTokenizer().Encode(word).value();
    ids.emplace_back(tokens.begin(), tokens.end());
  }
  return ids;
}

std::vector<GenerationParams> AllWaysToDecode() {
  std::vector<GenerationParams> all(6);
  all[1].num_beams = all[1].num_return_sequences = 4;
  all[2].do_sample = true;
  all[2].num_return_sequences = 8;
  all[2].temperature = 1.5;
  all[2].seed = 7;
  all[3].speculate = {.method = SpeculationMethod::kNgram};
  all[4] = all[1];
  all[4].speculate = {.method = SpeculationMethod::kSuffix, .num_tokens = 8};
  all[5].stochastic = true;
  all[5].num_beams = all[5].num_return_sequences = 4;
  all[5].seed = 8;
  for (GenerationParams& params : all) params.prefix_cache = false;
  return all;
}

bool IsWordByte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0;
}

// True if `text` has `word` between word boundaries.
bool HasWord(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != text.npos;
       at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || text[at - 1] == ' ';
    if (begins && (end == text.size() || !IsWordByte(text[end]))) return true;
  }
  return false;
}

// True if `tokens` are the tokenizer's encoding of `text`.
bool IsSpelling(std::vector<TokenId> tokens, const std::string& text) {
  if (!tokens.empty() && tokens.back() == EnFrTokenizer().special_tokens().eos)
    tokens.pop_back();
  return tokens == EnFrTokenizer().Encode(text).value();
}

// The number of drafts depends on the measured time of steps.
std::string LineWithoutCost(Generation output) {
  output.usage = {};
  return WriteResultLine("0", output, output.texts);
}

TEST(GeneratorBadWordsTest, WordsAreBannedAsTheirTokensAreAndDoNotCome) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Generator::Load(EnFrDir()));
  const std::vector<std::string> words = {"gare", "Où est", "où",
                                          "Il",   "pleut",  "Quel âge"};
  int num_changed = 0;
  using Prompts = std::vector<const char*>;
  for (const char* prompt :
       Cases(Prompts{"Where is the station?", "It rains.", "How old are you?"},
             Prompts{"Where is the station?"})) {
    for (const GenerationParams& params : AllWaysToDecode()) {
      GenerationRequest request{prompt, params};
      ASSERT_OK_AND_ASSIGN(const Generation free, generator.Generate(request));
      request.params.bad_words = words;
      ASSERT_OK_AND_ASSIGN(const Generation banned,
                           generator.Generate(request));
      request.params.bad_words.clear();
      request.params.bad_words_ids = IdsOf(words);
      ASSERT_OK_AND_ASSIGN(const Generation by_ids,
                           generator.Generate(request));
      EXPECT_EQ(LineWithoutCost(banned), LineWithoutCost(by_ids));
      num_changed += banned.texts != free.texts;
      for (size_t i = 0; i < banned.texts.size(); ++i) {
        const std::vector<TokenId>& tokens = banned.hypotheses[i].tokens;
        for (const std::vector<int64_t>& ban : IdsOf(words)) {
          EXPECT_TRUE(std::ranges::search(tokens, ban).empty());
        }
        if (!IsSpelling(tokens, banned.texts[i])) continue;
        for (const std::string& word : words) {
          EXPECT_FALSE(HasWord(banned.texts[i], word))
              << word << " in " << banned.texts[i];
        }
      }
    }
  }
  EXPECT_GE(num_changed, Cases(15, 5));
}

TEST(GeneratorBadWordsTest, WrongWordsAreRefused) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Generator::Load(EnFrDir()));
  GenerationRequest request{"It rains."};
  request.params.bad_words = {"pleut", ""};
  EXPECT_THAT(generator.Generate(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "bad_words[1] must not be empty, got \"\""));
  EXPECT_EQ(generator.Stats().num_open, 0);
}

TEST(GeneratorBadWordsTest, AModelWithoutTextRefusesThem) {
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Generator::Create(std::make_shared<ToyModel>(ToyModelOptions())));
  GenerationRequest request{std::vector<TokenId>{1, 2}};
  request.params.bad_words = {"damn"};
  EXPECT_THAT(generator.Generate(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("bad_words must be empty without a "
                                 "tokenizer")));
}

}  // namespace
}  // namespace espalier::testing
