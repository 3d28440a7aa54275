#include "espalier/split_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerationParams ParamsOf(int num_beams, int num_returned) {
  GenerationParams params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_returned;
  return params;
}

GenerationParams WithLogprobs() {
  GenerationParams params;
  params.logprobs = 1;
  return params;
}

TEST(SplitTextTest, LinesAreJoinedByTheirWhiteSpaceAndSentencesBySpaces) {
  const auto split =
      SplitIntoSentences(" It rains.   I go.\n\nDoes he?\r\nNo ");
  ASSERT_TRUE(split.has_value());
  EXPECT_THAT(split->sentences,
              ElementsAre("It rains.", "I go.", "Does he?", "No"));
  EXPECT_THAT(split->separators, ElementsAre("", " ", "\n\n", "\r\n"));
}

TEST(SplitTextTest, TextsOfOneSentenceStayAsTheyAre) {
  for (const char* text :
       {"", " ", "It rains.", "  It rains. \n", "\xFF. A. B."}) {
    EXPECT_FALSE(SplitIntoSentences(text).has_value()) << text;
  }
}

TEST(SplitTextTest, TheLanguageOfATextIsThatOfEachSentence) {
  EXPECT_THAT(SplitIntoSentences(">>fra<< It rains. I go.")->sentences,
              ElementsAre(">>fra<< It rains.", ">>fra<< I go."));
  EXPECT_THAT(SplitIntoSentences(">>fra<<\nIt rains.\nI go.")->sentences,
              ElementsAre(">>fra<< It rains.", ">>fra<< I go."));
  EXPECT_FALSE(SplitIntoSentences(">>fra<<\nIt rains.").has_value());
  const auto two = SplitIntoSentences(">>fra<< A dog.\n>>deu<< I go. He is.");
  EXPECT_THAT(two->sentences,
              ElementsAre(">>fra<< A dog.", ">>deu<< I go.", ">>deu<< He is."));
  EXPECT_THAT(two->separators, ElementsAre("", "\n", " "));
  EXPECT_THAT(SplitIntoSentences(">> It rains. I go << home.")->sentences,
              ElementsAre(">> It rains.", "I go << home."));
}

TEST(SplitTextTest, TranslatorsSplitByDefault) {
  SplitChoice choice;
  EXPECT_EQ(IsSplit(choice, {}).value(), false);
  choice.translates_sentences = true;
  EXPECT_EQ(IsSplit(choice, {}).value(), true);
  EXPECT_EQ(IsSplit(choice, WithLogprobs()).value(), false);
  choice.otherwise = false;
  EXPECT_EQ(IsSplit(choice, {}).value(), false);
  choice.given = true;
  EXPECT_EQ(IsSplit(choice, {}).value(), true);
  EXPECT_THAT(IsSplit(choice, WithLogprobs()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "split_sentences must be false with logprobs, got "
                       "true"));
}

TEST(SplitTextTest, OtherModelsSplitWhereTheyReadAndAreTold) {
  SplitChoice choice = {.given = true, .has_encoder = true};
  EXPECT_EQ(IsSplit(choice, {}).value(), true);
  choice.given.reset();
  EXPECT_EQ(IsSplit(choice, {}).value(), false);
  choice.otherwise = true;
  EXPECT_EQ(IsSplit(choice, {}).value(), true);
  choice.has_encoder = false;
  EXPECT_EQ(IsSplit(choice, {}).value(), false);
  choice.given = true;
  EXPECT_THAT(IsSplit(choice, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("split_sentences must be false for a model "
                                 "without an encoder")));
}

Generation AnswerOf(std::vector<Hypothesis> hypotheses,
                    std::vector<std::string> texts) {
  Generation answer;
  answer.hypotheses = std::move(hypotheses);
  answer.texts = std::move(texts);
  answer.usage.num_generated_tokens = 2;
  return answer;
}

TEST(SplitTextTest, AMissingHypothesisIsTheLastOfItsSentence) {
  const SentenceJoiner joiner({"", " "}, ParamsOf(2, 2));
  const Generation whole = joiner.Join(
      {AnswerOf({{.tokens = {1}, .score = -1}, {.tokens = {2}, .score = -2}},
                {"a", "b"}),
       AnswerOf({{.tokens = {3},
                  .score = -4,
                  .finish_reason = FinishReason::kLength}},
                {"c"})});
  EXPECT_THAT(whole.texts, ElementsAre("a c", "b c"));
  ASSERT_EQ(whole.hypotheses.size(), 2u);
  EXPECT_THAT(whole.hypotheses[1].tokens, ElementsAre(2, 3));
  EXPECT_EQ(whole.hypotheses[1].score, -6);
  EXPECT_EQ(whole.hypotheses[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(whole.usage.num_generated_tokens, 4);
}

TEST(SplitTextTest, SamplesAreJoinedByNumberAndSorted) {
  const SentenceJoiner joiner({"", " "}, ParamsOf(1, 2));
  const Generation whole = joiner.Join(
      {AnswerOf(
           {{.tokens = {},
             .score = -1,
             .finish_reason = FinishReason::kEos,
             .sample = 1},
            {.tokens = {}, .score = -2, .finish_reason = FinishReason::kEos}},
           {"a1", "a0"}),
       AnswerOf(
           {{.tokens = {}, .score = -1, .finish_reason = FinishReason::kEos},
            {.tokens = {},
             .score = -9,
             .finish_reason = FinishReason::kEos,
             .sample = 1}},
           {"b0", "b1"})});
  EXPECT_THAT(whole.texts, ElementsAre("a0 b0", "a1 b1"));
  EXPECT_EQ(whole.hypotheses[0].sample, 0);
  EXPECT_EQ(whole.hypotheses[0].finish_reason, FinishReason::kEos);
}

// The separator comes with the first text of a sentence, the rest of the best
// with its end.
TEST(SplitTextTest, StreamsTellTheRestOfTheBestWhereASentenceEnds) {
  SentenceJoiner joiner({"", "\n"}, ParamsOf(2, 1));
  const auto text_of = [](const std::optional<StreamEvent>& event) {
    return std::get<StablePrefixEvent>(event.value()).text;
  };
  EXPECT_EQ(text_of(joiner.Add(0, StablePrefixEvent{{1}, "Il"})), "Il");
  const Generation first = AnswerOf({{.tokens = {1, 2}}}, {"Il pleut."});
  EXPECT_EQ(text_of(joiner.End(0, first)), " pleut.");
  EXPECT_EQ(text_of(joiner.Add(1, StablePrefixEvent{{3}, "Oui"})), "\nOui");
  EXPECT_EQ(text_of(joiner.Add(1, StablePrefixEvent{{4}, "."})), ".");
  EXPECT_FALSE(joiner.End(1, first).has_value());
}

// A blank that a stop string leaves is not doubled, and a sentence without text
// has no space: streamed and whole alike.
TEST(SplitTextTest, SpacesAreThoseBetweenTexts) {
  const GenerationParams params = ParamsOf(1, 1);
  for (const std::vector<std::string>& texts :
       {std::vector<std::string>{"Il ", "", "Oui."},
        {"", "Il", "Oui. "},
        {"Il", "Oui", ""},
        {"", "", ""}}) {
    SentenceJoiner joiner({"", " ", " "}, params);
    std::string streamed;
    std::vector<Generation> answers;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto event = joiner.Add(
          i, SampleEvent{.sample = 0, .tokens = {1}, .text = texts[i]});
      streamed += std::get<SampleEvent>(event.value()).text;
      answers.push_back(AnswerOf({{.tokens = {1}}}, {texts[i]}));
    }
    EXPECT_EQ(joiner.Join(std::move(answers)).texts[0], streamed);
    EXPECT_EQ(streamed.find("  "), streamed.npos) << streamed;
    EXPECT_FALSE(streamed.starts_with(' ')) << streamed;
  }
}

TEST(SplitTextTest, AFieldThatKeepsATextWholeIsNamed) {
  SplitChoice choice = {.translates_sentences = true};
  const std::string two = "It rains. I go.";
  EXPECT_EQ(FieldOfWholeText(choice, WithLogprobs(), two), "logprobs");
  GenerationParams indices;
  indices.beam_indices = true;
  EXPECT_EQ(FieldOfWholeText(choice, indices, two), "beam_indices");
  EXPECT_EQ(FieldOfWholeText(choice, {}, two), "");
  EXPECT_EQ(FieldOfWholeText(choice, WithLogprobs(), "It rains."), "");
  choice.given = false;
  EXPECT_EQ(FieldOfWholeText(choice, WithLogprobs(), two), "");
}

// The best of several samples is known when the last sentence has ended.
TEST(SplitTextTest, BestSamplesAreNotToldAtTheEndOfASentence) {
  GenerationParams params = ParamsOf(1, 1);
  params.do_sample = true;
  params.best_of = 3;
  SentenceJoiner joiner({"", " "}, params);
  const Generation first = AnswerOf({{.tokens = {1, 2}}}, {"Il pleut."});
  EXPECT_FALSE(joiner.End(0, first).has_value());
}

}  // namespace
}  // namespace espalier
