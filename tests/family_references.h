// The searches of tests/data/families: requests, and what `generate` of
// transformers makes of them in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "request/request.h"
#include "tests/family_models.h"
#include "tests/reference_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {

inline constexpr double kFamilyScoreTolerance = 1e-4;

struct FamilyHypothesis {
  std::vector<TokenId> tokens;
  double score = NAN;  // beam search only
};

struct FamilyReference {
  Request request;
  std::vector<FamilyHypothesis> hypotheses;  // best first
  double cum_log_prob = NAN;                 // best hypothesis; NAN: unknown
};

inline FamilyReference ParseFamilyReference(const json::value& line) {
  FamilyReference reference;
  reference.request = ReferenceRequest(line);
  for (const json::value& from : line.at("hypotheses").as_array()) {
    const json::value& score = from.at("score");
    reference.hypotheses.push_back(
        {HypothesisTokens(from),
         score.is_null() ? NAN : score.to_number<double>()});
    const json::value* const sum = from.as_object().if_contains("cum_log_prob");
    if (sum != nullptr && reference.hypotheses.size() == 1) {
      reference.cum_log_prob = sum->to_number<double>();
    }
  }
  return reference;
}

// For an encoder-decoder, includes references with a decoder prompt.
inline std::vector<FamilyReference> ReadFamilyReferences(
    const std::string& model) {
  std::vector<FamilyReference> references;
  for (const char* file : {"/requests.jsonl", "/decoder_prompts.jsonl"}) {
    for (const json::value& line :
         ReadReferenceLines(FamilyPath(model) + file)) {
      references.push_back(ParseFamilyReference(line));
    }
  }
  return references;
}

inline std::vector<Request> RequestsOf(
    const std::vector<FamilyReference>& references) {
  std::vector<Request> requests;
  for (const FamilyReference& reference : references) {
    requests.push_back(reference.request);
  }
  return requests;
}

// The reference's tokens, rank by rank, and scores as near as float32 gets.
inline void ExpectFamilyHypotheses(const std::vector<Hypothesis>& actual,
                                   const FamilyReference& reference) {
  ASSERT_EQ(actual.size(), reference.hypotheses.size());
  for (size_t rank = 0; rank < actual.size(); ++rank) {
    const FamilyHypothesis& expected = reference.hypotheses[rank];
    EXPECT_EQ(actual[rank].tokens, expected.tokens) << "rank " << rank;
    if (std::isnan(expected.score)) continue;
    EXPECT_NEAR(actual[rank].score, expected.score,
                kFamilyScoreTolerance * std::max(1.0, -expected.score))
        << "rank " << rank;
  }
}

}  // namespace espalier::testing
