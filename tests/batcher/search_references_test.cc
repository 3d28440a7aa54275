// Searches with options that beam_search.jsonl lacks, against libraries that
// support them (tests/data/README.md): diverse groups of beams, patience, and
// score processors. Tokens are equal and scores agree within 1e-4; hypotheses
// whose scores are that close may swap.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_count.h"
#include "base/json.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/batcher/generate_all.h"
#include "tests/reference_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::GenerateAll;
using testing::MakeExecutor;
using testing::MakePool;

constexpr double kScoreTolerance = 1e-4;  // relative, on scores

struct Expected {
  std::vector<TokenId> tokens;
  double score;
};

struct Reference {
  Request request;
  std::vector<Expected> hypotheses;  // best first
};

std::vector<Reference> ReadReferences(const std::string& name) {
  std::vector<Reference> references;
  for (const json::value& line :
       testing::ReadReferenceLines(SourcePath("tests/data/" + name))) {
    Reference& reference = references.emplace_back();
    reference.request = testing::ReferenceRequest(line);
    for (const json::value& hypothesis : line.at("hypotheses").as_array()) {
      reference.hypotheses.push_back(
          {testing::HypothesisTokens(hypothesis),
           hypothesis.at("score").to_number<double>()});
    }
  }
  return references;
}

std::vector<absl::StatusOr<Result>> RunAll(
    const std::vector<Reference>& references) {
  const auto threads = MakePool(NumUsableCpus());
  const auto model =
      TransformerModel::Load(SourcePath("models/en-fr"),
                             {.kv_cache_bytes = int64_t{32} << 20}, threads);
  EXPECT_OK(model);
  std::vector<Request> requests;
  for (const Reference& reference : references) {
    requests.push_back(reference.request);
  }
  return GenerateAll(MakeExecutor(model->get(), threads), requests,
                     {{.validate_steps = true}});
}

bool Close(double a, double b) {
  return std::abs(a - b) <=
         kScoreTolerance * std::max(std::abs(a), std::abs(b));
}

// True if `actual` equals the reference at `rank`, or at a rank of the same
// score within the tolerance.
bool Matches(const std::vector<Expected>& expected, size_t rank,
             const Hypothesis& actual) {
  const auto is_same = [&](const Expected& hypothesis) {
    return hypothesis.tokens == actual.tokens &&
           Close(hypothesis.score, actual.score) &&
           Close(hypothesis.score, expected[rank].score);
  };
  return std::ranges::any_of(expected, is_same);
}

void ExpectReferences(const std::string& name) {
  const std::vector<Reference> references = ReadReferences(name);
  ASSERT_EQ(references.size(), 80u);
  const auto results = RunAll(references);
  int num_hypotheses = 0;
  int num_swapped = 0;
  for (size_t i = 0; i < references.size(); ++i) {
    ASSERT_OK(results[i]) << "line " << i;
    const std::vector<Expected>& expected = references[i].hypotheses;
    const std::vector<Hypothesis>& actual = results[i]->hypotheses;
    ASSERT_EQ(actual.size(), expected.size()) << "line " << i;
    for (size_t rank = 0; rank < actual.size(); ++rank) {
      EXPECT_TRUE(Matches(expected, rank, actual[rank]))
          << "line " << i << ", rank " << rank << ": score "
          << actual[rank].score << ", expected " << expected[rank].score;
      ++num_hypotheses;
      num_swapped += actual[rank].tokens != expected[rank].tokens;
    }
  }
  std::printf("%s: %d hypotheses, %d in another order within the tolerance\n",
              name.c_str(), num_hypotheses, num_swapped);
}

TEST(SearchReferencesTest, DiverseGroupsAreThoseOfTransformers4) {
  ExpectReferences("diverse_beams.jsonl");
}

TEST(SearchReferencesTest, PatienceIsThatOfCTranslate2) {
  ExpectReferences("patience.jsonl");
}

TEST(SearchReferencesTest, ScoreProcessorsAreThoseOfTransformers5) {
  ExpectReferences("processors.jsonl");
}

}  // namespace
}  // namespace espalier
