// models/en-fr against log-probabilities that transformers computed in
// float64: 24 sequences, the 12 best tokens after every position.
#include <gtest/gtest.h>

#include "model/transformer_model.h"
#include "tests/model/feeder.h"
#include "tests/model/logprobs_examples.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::ExpectLogProbs;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::LogProbsExample;
using ::espalier::testing::ReadLogProbsExamples;

constexpr double kTolerance = 1e-4;

TEST(LogProbsTest, EveryPositionOfEveryReferenceSequenceMatches) {
  const auto pool = ::espalier::testing::MakePool(2);
  ASSERT_OK_AND_ASSIGN(
      const auto model,
      TransformerModel::Load(SourcePath("models/en-fr"), {}, pool));
  const auto examples = ReadLogProbsExamples();
  ASSERT_EQ(examples.size(), 24u);
  for (const LogProbsExample& example : examples) {
    const int num_tokens = static_cast<int>(example.tokens.size());
    const LogitsRows whole = FeedAlone(model.get(), example.tokens, num_tokens);
    ExpectLogProbs(whole, example, kTolerance);
    EXPECT_EQ(FeedAlone(model.get(), example.tokens, 1), whole);
    EXPECT_EQ(FeedAlone(model.get(), example.tokens, 3), whole);
  }
}

}  // namespace
}  // namespace espalier
