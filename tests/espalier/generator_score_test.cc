// Scores of given continuations through the public API: texts as tokens,
// compared with the sums of generated tokens and of a prompt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "espalier/generator.h"
#include "tests/family_models.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"
#include "text/tokenizer/json_tokenizer.h"
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

// A toy model with a tokenizer: the embedded translator's.
Generator ToyGenerator(
    const std::shared_ptr<const Tokenizer>& tokenizer = SharedEnFrTokenizer()) {
  ToyModelOptions options;
  options.vocab_size = tokenizer->vocab_size();
  options.num_pages = 500;
  options.has_shareable_pages = true;
  absl::StatusOr<Generator> generator =
      Generator::Create(std::make_shared<ToyModel>(options), tokenizer);
  EXPECT_OK(generator);
  return *std::move(generator);
}

// A template of two languages forces the first token, as a default of the model
// does: it is no part of the sum, whether the continuation has it or not.
TEST(GeneratorScoreTest, ATranslationIsScoredAfterTheTokenOfItsLanguage) {
  absl::StatusOr<Generator> generator = Generator::Load(
      SourcePath("tests/data/text_models/nllb"), {.num_threads = 1});
  ASSERT_OK(generator);
  const auto prompt = [] {
    return Prompt::Templated("Tom is here.", "eng-French");
  };
  GenerationRequest search{prompt()};
  search.params.num_beams = search.params.num_return_sequences = 2;
  search.params.max_new_tokens = 6;
  ASSERT_OK_AND_ASSIGN(const Generation found, generator->Generate(search));
  const TokenId french = *generator->tokenizer()->PieceToId("fra_Latn");
  ScoreRequest scored{prompt()};
  for (const Hypothesis& hypothesis : found.hypotheses) {
    ASSERT_EQ(hypothesis.tokens[0], french);
    scored.continuations.emplace_back(hypothesis.tokens);
    scored.continuations.emplace_back(std::vector<TokenId>(
        hypothesis.tokens.begin() + 1, hypothesis.tokens.end()));
  }
  ASSERT_OK_AND_ASSIGN(const Generation scores, generator->Score(scored));
  std::promise<absl::StatusOr<Generation>> promise;
  generator->ScoreAsync(scored, [&](absl::StatusOr<Generation> answer) {
    promise.set_value(std::move(answer));
  });
  ASSERT_OK_AND_ASSIGN(const Generation later, promise.get_future().get());
  for (size_t i = 0; i < scores.continuations.size(); ++i) {
    EXPECT_EQ(later.continuations[i].log_probs,
              scores.continuations[i].log_probs);
  }
  for (size_t i = 0; i < found.hypotheses.size(); ++i) {
    EXPECT_NEAR(scores.continuations[2 * i].cum_log_prob,
                scores.continuations[2 * i + 1].cum_log_prob, 1e-6);
    EXPECT_NEAR(scores.continuations[2 * i].cum_log_prob,
                found.hypotheses[i].cum_log_prob, 1e-4);
  }
}

// A hypothesis has, as a continuation, the sum that its search gave it.
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
  // After tokens, the text is encoded separately.
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
  // The tokens are kept as given, and the text is encoded separately.
  ScoreRequest tokens{Prompt::Raw("The sta"), {"tion."}};
  tokens.params.decoder_prompt_tokens = {300};
  EXPECT_EQ(TokensScored(generator, tokens),
            EnFrTokenizer().Encode("tion.").value());
}

// At every place of a text: the tail of the whole text's prompt_logprobs, where
// its tokens begin with the prompt's, and else that of the tokens that it has.
// Returns the number of places of the first kind.
int ExpectTailsOfWholeText(Generator& generator, const Tokenizer& tokenizer) {
  const std::string text = "It rains in the stations, 1234 times.";
  const std::vector<TokenId> whole = tokenizer.Encode(text).value();
  int num_tails = 0;
  for (size_t at = 1; at < text.size(); ++at) {
    const std::string prompt = text.substr(0, at);
    SCOPED_TRACE(prompt);
    const std::vector<TokenId> before = tokenizer.Encode(prompt).value();
    const absl::StatusOr<Generation> scores =
        generator.Score({Prompt::Raw(prompt), {text.substr(at)}});
    EXPECT_OK(scores);
    if (!scores.ok()) return 0;
    std::vector<TokenId> read = before;
    const ContinuationScore& score = scores->continuations[0];
    read.insert(read.end(), score.tokens.begin(), score.tokens.end());
    EXPECT_EQ(tokenizer.Decode(read).value(), tokenizer.Decode(whole).value());
    GenerationRequest echo{read};
    if (whole.size() > before.size() &&
        std::equal(before.begin(), before.end(), whole.begin())) {
      echo.prompt = Prompt::Raw(text);
      ++num_tails;
    }
    echo.params.max_new_tokens = 0;
    echo.params.prompt_logprobs = 0;
    const absl::StatusOr<Generation> echoed = generator.Generate(echo);
    EXPECT_OK(echoed);
    if (!echoed.ok()) return 0;
    const std::vector<TokenLogProb>& all = *echoed->prompt_logprobs;
    std::vector<float> tail;
    for (size_t i = before.size() - 1; i < all.size(); ++i) {
      tail.push_back(all[i].log_prob);
    }
    EXPECT_EQ(score.log_probs, tail);
  }
  return num_tails;
}

TEST(GeneratorScoreTest, ATextHasTheTailOfTheWholeTextsLogProbs) {
  Generator model = LoadModel("en-fr");
  EXPECT_GT(ExpectTailsOfWholeText(model, EnFrTokenizer()), 5);
  for (const char* const name :
       {"gpt2", "llama3", "qwen", "falcon", "metaspace_bpe",
        "sentencepiece_bpe", "unigram_first", "unigram_nfkc"}) {
    SCOPED_TRACE(name);
    const json::value file =
        ParseJson(ReadFile(SourcePath(
                               Concat("tests/data/tokenizers/", name, ".json")),
                           size_t{1} << 20)
                      .value())
            .value();
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
        JsonTokenizer::Parse(WriteJson(file.at("tokenizer")), {});
    ASSERT_OK(tokenizer);
    const std::shared_ptr<const Tokenizer> shared = *std::move(tokenizer);
    Generator toy = ToyGenerator(shared);
    EXPECT_GT(ExpectTailsOfWholeText(toy, *shared), 5);
  }
}

constexpr TokenId kForced = 17;

// A directory in `scratch` like that of a family's model, whose outputs begin
// with kForced.
std::string WithForcedBos(const std::string& family,
                          const ScratchDirectory& scratch) {
  std::filesystem::create_directory(scratch.path(family));
  for (const char* const file : {"config.json", "model.safetensors",
                                 "model.bin", "shared_vocabulary.json"}) {
    const std::string from = FamilyPath(family) + "/" + file;
    if (!std::filesystem::exists(from)) continue;
    std::filesystem::create_symlink(from, scratch.path(family + "/" + file));
  }
  scratch.Write(family + "/generation_config.json",
                R"({"forced_bos_token_id": 17, "eos_token_id": 2})");
  return scratch.path(family);
}

void ExpectGreedyScores(const std::string& directory, const Prompt& prompt,
                        bool is_forced) {
  SCOPED_TRACE(directory);
  absl::StatusOr<Generator> generator =
      Generator::Load(directory, {.dtype = "f32", .num_threads = 1});
  ASSERT_OK(generator);
  for (const int num_beams : {1, 3}) {
    GenerationRequest search{prompt};
    search.params.num_beams = search.params.num_return_sequences = num_beams;
    search.params.do_sample = false;
    search.params.max_new_tokens = 8;
    ASSERT_OK_AND_ASSIGN(const Generation found, generator->Generate(search));
    ScoreRequest request{prompt};
    for (const Hypothesis& hypothesis : found.hypotheses) {
      EXPECT_TRUE(!is_forced || hypothesis.tokens[0] == kForced);
      request.continuations.emplace_back(hypothesis.tokens);
    }
    ASSERT_OK_AND_ASSIGN(const Generation scores, generator->Score(request));
    for (size_t i = 0; i < found.hypotheses.size(); ++i) {
      const ContinuationScore& score = scores.continuations[i];
      EXPECT_EQ(score.tokens, found.hypotheses[i].tokens);
      // Greedy search reports the model's own figure of a token that is forced,
      // beams none.
      if (!is_forced || num_beams > 1) {
        EXPECT_NEAR(score.cum_log_prob, found.hypotheses[i].cum_log_prob, 1e-4);
      }
      if (num_beams == 1) {
        EXPECT_TRUE(score.is_greedy);
      }
      EXPECT_TRUE(!is_forced || score.log_probs[0] == 0);
      // Without the forced token it is the rest of the same.
      if (!is_forced || score.tokens[1] == kForced) continue;
      ScoreRequest rest{prompt};
      rest.continuations.emplace_back(
          std::vector<TokenId>(score.tokens.begin() + 1, score.tokens.end()));
      ASSERT_OK_AND_ASSIGN(const Generation rests, generator->Score(rest));
      EXPECT_EQ(rests.continuations[0].is_greedy, score.is_greedy);
      EXPECT_EQ(rests.continuations[0].cum_log_prob, score.cum_log_prob);
    }
  }
  if (!is_forced) return;
  ScoreRequest empty{prompt};
  empty.continuations.emplace_back(std::vector<TokenId>{kForced});
  EXPECT_THAT(std::string(generator->Score(empty).status().message()),
              HasSubstr("continuations[0] must have more than the model's "
                        "forced_bos_token_id, 17, got [17]"));
}

// For every model of the tests, and for those whose outputs may begin with a
// forced token.
TEST(GeneratorScoreTest, OutputsOfGreedySearchAreGreedy) {
  for (const char* const name : {"models/en-fr", "models/en-fr-marian"}) {
    ExpectGreedyScores(SourcePath(name), "Where is the station?", false);
  }
  const std::vector<TokenId> prompt = {21, 41, 59, 44, 22, 27, 28};
  for (const std::string& name : FamilyModels()) {
    ExpectGreedyScores(FamilyPath(name), prompt, false);
  }
  const ScratchDirectory scratch;
  for (const std::string& name : EncoderFamilyModels()) {
    ExpectGreedyScores(WithForcedBos(name, scratch), prompt, true);
  }
}

// As a decoder prompt does, which has it in front (BART).
TEST(GeneratorScoreTest, TheForcedTokenStandsBeforeTextsAndDecoderPrompts) {
  const ScratchDirectory scratch;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("models/en-fr-marian"))) {
    if (entry.path().filename() == "generation_config.json") continue;
    std::filesystem::create_symlink(entry.path(),
                                    scratch.path(entry.path().filename()));
  }
  scratch.Write("generation_config.json",
                R"({"forced_bos_token_id": 277, "eos_token_id": 2,
                    "decoder_start_token_id": 3})");
  absl::StatusOr<Generator> generator =
      Generator::Load(scratch.path(), {.num_threads = 1});
  ASSERT_OK(generator);
  GenerationRequest search{"Where is the station?"};
  search.params.max_new_tokens = 20;
  ASSERT_OK_AND_ASSIGN(const Generation found, generator->Generate(search));
  const std::vector<TokenId>& written = found.hypotheses[0].tokens;
  ASSERT_EQ(written[0], 277);
  const std::string text =
      generator->tokenizer()->Decode(std::span(written).subspan(1)).value();
  ScoreRequest whole{"Where is the station?", {TextOrTokens(text)}};
  ASSERT_OK_AND_ASSIGN(const Generation one, generator->Score(whole));
  const std::vector<float>& all = one.continuations[0].log_probs;
  const size_t space = text.find(' ', 3);
  ASSERT_NE(space, text.npos);
  ScoreRequest rest{"Where is the station?", {text.substr(space)}};
  rest.params.decoder_prompt = text.substr(0, space);
  ASSERT_OK_AND_ASSIGN(const Generation other, generator->Score(rest));
  const std::vector<float>& last = other.continuations[0].log_probs;
  ASSERT_LT(last.size(), all.size());
  EXPECT_EQ(last, std::vector<float>(all.end() - last.size(), all.end()));
  EXPECT_TRUE(one.continuations[0].is_greedy);
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
