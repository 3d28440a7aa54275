#include "beam/group_scoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using namespace ::espalier::testing;  // NOLINT

constexpr int kNumScoredTokens = 9;
constexpr int kScoresPerToken = 2 * 3;  // heads, positions

// As a validated request of an alignment.
Request AlignedRequest() {
  Request request;
  request.prompt_tokens = {5, 6, 7, 8, 4};
  request.params.max_new_tokens = 0;
  request.params.prompt_logprobs = 0;
  request.alignment = std::make_shared<const AlignmentQuery>(AlignmentQuery{
      .heads = {{0, 0}, {1, 2}}, .num_positions = 3, .num_text_tokens = 9});
  return request;
}

std::vector<float> Scores(int first_token, int num_tokens) {
  std::vector<float> scores(num_tokens * kScoresPerToken);
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(first_token * kScoresPerToken + i);
  }
  return scores;
}

PromptLogprobsResult Answer(const Request& request, int first, int num_tokens) {
  PromptLogprobsResult answer = {.request = RequestId{0}, .logprobs = {}};
  for (int i = first; i < first + num_tokens; ++i) {
    answer.logprobs.push_back({.token = request.prompt_tokens[i + 1],
                               .log_prob = -1.0f * static_cast<float>(i),
                               .rank = 1,
                               .best = {}});
  }
  answer.attention_scores = Scores(first, num_tokens);
  return answer;
}

TEST(GroupScoringTest, ScoresOfAttentionAreMovedFromTheStepToTheResult) {
  const Request request = AlignedRequest();
  GroupScoring scoring(RequestId{0}, &request, /*pages=*/nullptr,
                       /*walk=*/nullptr);
  PromptLogprobsResult answer = Answer(request, 0, 4);
  const float* const memory = answer.attention_scores.data();
  ASSERT_OK(scoring.Take(std::move(answer), 4, kNumScoredTokens));
  Result result;
  scoring.FillResult(&result);
  EXPECT_EQ(result.alignment->attention_scores.data(), memory);
  EXPECT_THAT(result.alignment->attention_scores,
              ElementsAreArray(Scores(0, 4)));
  EXPECT_THAT(result.alignment->log_probs, ElementsAreArray({0, -1, -2, -3}));
}

TEST(GroupScoringTest, ScoresOfSeveralStepsTakeNoMoreMemoryThanTheirs) {
  const Request request = AlignedRequest();
  GroupScoring scoring(RequestId{0}, &request, /*pages=*/nullptr,
                       /*walk=*/nullptr);
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 2}, {3, 1}}) {
    ASSERT_OK(
        scoring.Take(Answer(request, first, count), count, kNumScoredTokens));
  }
  Result result;
  scoring.FillResult(&result);
  const std::vector<float>& scores = result.alignment->attention_scores;
  EXPECT_THAT(scores, ElementsAreArray(Scores(0, 4)));
  EXPECT_EQ(scores.capacity(), scores.size());
}

TEST(GroupScoringTest, OtherSizesOfScoresAreErrors) {
  const Request request = AlignedRequest();
  GroupScoring scoring(RequestId{0}, &request, /*pages=*/nullptr,
                       /*walk=*/nullptr);
  PromptLogprobsResult answer = Answer(request, 0, 4);
  answer.attention_scores.pop_back();
  EXPECT_THAT(scoring.Take(std::move(answer), 4, kNumScoredTokens),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("23 scores of attention in place of 24")));
}

}  // namespace
}  // namespace espalier
