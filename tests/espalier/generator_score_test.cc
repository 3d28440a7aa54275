// Scores of given continuations, through the front door: texts as tokens, and
// what a caller can compare them with: sums of what is generated, and of a
// prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/generator.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Generator LoadModel(const std::string& name) {
  absl::StatusOr<Generator> generator =
      Generator::Load(SourcePath("models/" + name), {.num_threads = 1});
  EXPECT_OK(generator);
  return *std::move(generator);
}

// A toy model with the embedded translator's tokenizer.
Generator ToyGenerator() {
  ToyModelOptions options;
  options.vocab_size = EnFrTokenizer().vocab_size();
  options.num_pages = 500;
  options.has_shareable_pages = true;
  absl::StatusOr<Generator> generator = Generator::Create(
      std::make_shared<ToyModel>(options),
      std::shared_ptr<const Tokenizer>(&EnFrTokenizer(), [](const auto*) {}));
  EXPECT_OK(generator);
  return *std::move(generator);
}

// What a search finds has, given as a continuation, the sum that it has there.
TEST(GeneratorScoreTest, HypothesesHaveTheSumsOfTheirSearch) {
  for (const char* const name : {"en-fr", "en-fr-marian"}) {
    Generator generator = LoadModel(name);
    GenerationRequest search{"Where is the station?"};
    search.params.num_beams = search.params.num_return_sequences = 4;
    ASSERT_OK_AND_ASSIGN(const Generation found, generator.Generate(search));
    ScoreRequest by_tokens{"Where is the station?"};
    for (const Hypothesis& hypothesis : found.hypotheses) {
      by_tokens.continuations.emplace_back(hypothesis.tokens);
    }
    ASSERT_OK_AND_ASSIGN(const Generation scores, generator.Score(by_tokens));
    ASSERT_THAT(scores.continuations, SizeIs(4));
    EXPECT_THAT(scores.hypotheses, IsEmpty());
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(scores.continuations[i].cum_log_prob,
                  found.hypotheses[i].cum_log_prob, 1e-5);
    }
    // Texts become the tokens that the model writes, and its EOS.
    ScoreRequest by_text{"Where is the station?"};
    by_text.continuations.emplace_back(found.texts[0]);
    by_text.append_eos = true;
    ASSERT_OK_AND_ASSIGN(const Generation text, generator.Score(by_text));
    EXPECT_EQ(text.continuations[0].tokens, found.hypotheses[0].tokens);
    EXPECT_EQ(text.continuations[0].log_probs,
              scores.continuations[0].log_probs);
  }
}

TEST(GeneratorScoreTest, AfterADecoderPromptItIsWhatTheModelWouldWriteThere) {
  Generator generator = LoadModel("en-fr-marian");
  ScoreRequest whole{"Where is the station?"};
  whole.continuations.emplace_back("Où se trouve la gare ?");
  ASSERT_OK_AND_ASSIGN(const Generation one, generator.Score(whole));
  ScoreRequest rest{"Where is the station?"};
  rest.params.decoder_prompt = "Où se trouve";
  rest.continuations.emplace_back(" la gare ?");
  ASSERT_OK_AND_ASSIGN(const Generation other, generator.Score(rest));
  const std::vector<float>& all = one.continuations[0].log_probs;
  const std::vector<float>& last = other.continuations[0].log_probs;
  ASSERT_LT(last.size(), all.size());
  EXPECT_EQ(last, std::vector<float>(all.end() - last.size(), all.end()));
}

std::vector<TokenId> TokensScored(Generator& generator, ScoreRequest request) {
  const absl::StatusOr<Generation> scores = generator.Score(std::move(request));
  EXPECT_OK(scores);
  return scores.ok() ? scores->continuations[0].tokens : std::vector<TokenId>();
}

TEST(GeneratorScoreTest, ATextContinuesItsPrompt) {
  Generator generator = ToyGenerator();
  const Tokenizer& tokenizer = EnFrTokenizer();
  const std::string prompt = "It rains in the";
  const std::vector<TokenId> before = tokenizer.Encode(prompt).value();
  for (const std::string text : {" morning.", " a", "!"}) {
    std::vector<TokenId> expected = tokenizer.Encode(prompt + text).value();
    expected.erase(expected.begin(), expected.begin() + before.size());
    EXPECT_EQ(
        TokensScored(generator, {Prompt::Raw(prompt), {TextOrTokens(text)}}),
        expected)
        << text;
  }
  // "there" is a token: the rest of it has no space in front.
  EXPECT_EQ(TokensScored(generator, {Prompt::Raw(prompt), {"re are"}}),
            (std::vector<TokenId>{tokenizer.PieceToId("re").value(),
                                  tokenizer.PieceToId("\u2581are").value()}));
  // After tokens it stands by itself.
  EXPECT_EQ(
      TokensScored(generator, {std::vector<TokenId>{1, 2, 3}, {"morning"}}),
      tokenizer.Encode("morning").value());
}

TEST(GeneratorScoreTest, ADecoderPromptIsOfTheTextWithoutAnEncoder) {
  Generator generator = ToyGenerator();
  ScoreRequest divided{Prompt::Raw("The sta"), {"tion."}};
  divided.params.decoder_prompt = " is";
  const ScoreRequest whole{Prompt::Raw("The sta is"), {"tion."}};
  ASSERT_OK_AND_ASSIGN(const Generation one, generator.Score(divided));
  ASSERT_OK_AND_ASSIGN(const Generation other, generator.Score(whole));
  EXPECT_EQ(one.continuations[0].tokens, other.continuations[0].tokens);
  EXPECT_EQ(one.continuations[0].log_probs, other.continuations[0].log_probs);
  // Tokens spell what they spell: the text stands by itself.
  ScoreRequest tokens{Prompt::Raw("The sta"), {"tion."}};
  tokens.params.decoder_prompt_tokens = {300};
  EXPECT_EQ(TokensScored(generator, tokens),
            EnFrTokenizer().Encode("tion.").value());
}

// With every tokenizer that a decoder-only model of the tests has, at every
// place of a text: the tail of the whole text's prompt_logprobs, where its
// tokens begin as the prompt's.
TEST(GeneratorScoreTest, ATextHasTheTailOfTheWholeTextsLogProbs) {
  Generator generator = LoadModel("en-fr");
  const Tokenizer& tokenizer = EnFrTokenizer();
  const std::string text = "It rains in the stations, 1234 times.";
  int num_tails = 0;
  for (size_t at = 1; at < text.size(); ++at) {
    const std::string prompt = text.substr(0, at);
    if (prompt.ends_with(' ')) continue;  // the tokenizer drops it
    const std::vector<TokenId> before = tokenizer.Encode(prompt).value();
    const std::vector<TokenId> whole = tokenizer.Encode(text).value();
    ASSERT_OK_AND_ASSIGN(
        const Generation scores,
        generator.Score({Prompt::Raw(prompt), {text.substr(at)}}));
    std::vector<TokenId> read = before;
    const ContinuationScore& score = scores.continuations[0];
    read.insert(read.end(), score.tokens.begin(), score.tokens.end());
    EXPECT_EQ(tokenizer.Decode(read).value(), text);
    GenerationRequest echo{read};
    if (std::equal(before.begin(), before.end(), whole.begin())) {
      echo.prompt = Prompt::Raw(text);
      ++num_tails;
    }
    echo.params.max_new_tokens = 0;
    echo.params.prompt_logprobs = 0;
    ASSERT_OK_AND_ASSIGN(const Generation echoed, generator.Generate(echo));
    const std::vector<TokenLogProb>& all = *echoed.prompt_logprobs;
    std::vector<float> tail;
    for (size_t i = before.size() - 1; i < all.size(); ++i) {
      tail.push_back(all[i].log_prob);
    }
    EXPECT_EQ(score.log_probs, tail) << prompt;
  }
  EXPECT_GT(num_tails, 5);
}

TEST(GeneratorScoreTest, SumsAreThoseOfAPromptWithTheContinuation) {
  Generator generator = LoadModel("en-fr");
  const std::vector<TokenId> prompt = {1, 4, 502, 282, 283, 2707, 270, 5};
  ScoreRequest request{prompt};
  request.continuations = {"Où est la gare ?", "Où est le train ?", "Où"};
  ASSERT_OK_AND_ASSIGN(const Generation scores, generator.Score(request));
  for (const ContinuationScore& score : scores.continuations) {
    std::vector<TokenId> whole = prompt;
    whole.insert(whole.end(), score.tokens.begin(), score.tokens.end());
    GenerationRequest echo{whole};
    echo.params.max_new_tokens = 0;
    echo.params.prompt_logprobs = 0;
    ASSERT_OK_AND_ASSIGN(const Generation echoed, generator.Generate(echo));
    double sum = 0;
    for (size_t i = prompt.size() - 1; i < echoed.prompt_logprobs->size();
         ++i) {
      sum += echoed.prompt_logprobs->at(i).log_prob;
    }
    EXPECT_EQ(score.cum_log_prob, sum);
  }
}

TEST(GeneratorScoreTest, WrongOnesAreNamed) {
  Generator generator = ToyGenerator();
  const auto error_of = [&](ScoreRequest request) {
    return std::string(generator.Score(std::move(request)).status().message());
  };
  ScoreRequest request{"It rains."};
  EXPECT_EQ(error_of(request), "continuations must not be empty, got []");
  request.continuations = {"a", ""};
  EXPECT_THAT(error_of(request), HasSubstr("continuations[1]"));
  request.continuations = {"a", "\xff"};
  EXPECT_EQ(error_of(request), "continuations[1] is not UTF-8");
  request.continuations = {std::vector<TokenId>{1 << 20}};
  EXPECT_THAT(error_of(request), HasSubstr("continuations[0][0]"));
  request.continuations.assign(100, std::string(200'000, 'a'));
  EXPECT_THAT(error_of(request), HasSubstr("give them as token ids"));
}

}  // namespace
}  // namespace espalier::testing
