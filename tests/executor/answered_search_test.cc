// Comparison of results of searches whose rows choose separately: ties pass and
// are counted, planted mistakes fail.
#include "tests/executor/answered_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "beam/strategy/make_strategy.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "tests/beam/search_alone.h"
#include "tests/executor/answer_comparison.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// With stops, diverse beams do not say what of the rows' best may be left out.
enum class Kind { kStochastic, kSampled, kDiverse, kDiverseWithStops };

PreparedRequest RequestOf(Kind kind) {
  GenerationParams params;
  params.num_beams = 12;
  params.num_return_sequences = 12;
  params.max_new_tokens = 4;
  params.eos_token_id = {{0}};
  params.seed = 3;
  params.stochastic = kind == Kind::kStochastic;
  params.do_sample = kind == Kind::kSampled;
  if (kind == Kind::kDiverse || kind == Kind::kDiverseWithStops) {
    params.num_beam_groups = 3;
    params.diversity_penalty = 0.7;
  }
  if (kind == Kind::kDiverseWithStops) params.stop = {"no such word"};
  return PreparedRequest({.prompt_tokens = {1}, .params = params},
                         SharedEnFrTokenizer());
}

// Changes the answer to a step's selection.
using Edit = std::function<void(size_t step, const PlanSelection& selection,
                                std::vector<Candidate>* candidates)>;

// Runs an edited model of 60 tokens, and returns its results and the output.
AnsweredRequest RunOf(const PreparedRequest& request, const Edit& edit) {
  const LogitsModel model = ToyLogitsModel({.vocab_size = 60, .seed = 5});
  const auto strategy =
      MakeStrategy(request.request.params, request.constraint, request.text);
  AnsweredRequest run;
  while (!strategy->done()) {
    PlanSelection selection;
    strategy->DescribeSelection(&selection);
    SelectionResult answer = NextAnswer(*strategy, model, request.request);
    std::vector<Candidate> candidates(answer.candidates.begin(),
                                      answer.candidates.end());
    if (edit) edit(run.steps.size(), selection, &candidates);
    answer.candidates.assign(candidates.begin(), candidates.end());
    run.steps.push_back(std::move(candidates));
    EXPECT_OK(strategy->Advance(answer));
  }
  run.result.hypotheses = strategy->Hypotheses();
  run.result.threshold = strategy->threshold();
  return run;
}

double NoiseOf(const PlanSelection& selection, int row, TokenId token) {
  return Gumbel(GumbelKey(3, row, selection.num_generated), token);
}

class AnsweredSearchTest : public ::testing::TestWithParam<Kind> {
 protected:
  AnsweredSearchTest() : request_(RequestOf(GetParam())) {}

  bool draws() const { return DrawsAtRandom(request_.request.params); }
  AnsweredRequest Run(const Edit& edit = nullptr) const {
    return RunOf(request_, edit);
  }
  std::string Compare(const AnsweredRequest& actual) {
    return CompareAnswers(request_, Run(), actual, &counts_);
  }
  int NumExceptions() const {
    return counts_.num_near_ties + counts_.num_late_ties +
           counts_.num_amplified;
  }

  const PreparedRequest request_;
  AnswerCounts counts_;
};

TEST_P(AnsweredSearchTest, RunAgreesWithItself) {
  EXPECT_EQ(Compare(Run()), "");
  EXPECT_EQ(counts_.num_beams, 1);
  EXPECT_EQ(NumExceptions(), 0);
}

TEST_P(AnsweredSearchTest, ResultIsWhatItsAnswersLeadTo) {
  AnsweredRequest run = Run();
  run.result.hypotheses[7].score *= 1 + 1e-6f;
  EXPECT_THAT(Compare(run), HasSubstr("hypothesis 7: score"));
  run = Run();
  run.result.hypotheses[7].cum_log_prob *= 1 + 1e-6f;
  EXPECT_THAT(Compare(run), HasSubstr("hypothesis 7: score"));
  run = Run();
  run.result.hypotheses[3].tokens[1] ^= 1;
  EXPECT_THAT(Compare(run), HasSubstr("its answers give other tokens"));
  run = Run();
  run.result.hypotheses.pop_back();
  EXPECT_THAT(Compare(run), HasSubstr("11 hypotheses, its answers give 12"));
  run = Run();
  run.result.threshold = 0.125;
  EXPECT_THAT(Compare(run), HasSubstr("threshold 0.125, its answers give"));
  run = Run();
  run.steps.pop_back();
  EXPECT_THAT(Compare(run), HasSubstr("do not end the search in 3 steps"));
  EXPECT_EQ(NumExceptions(), 0);
}

TEST_P(AnsweredSearchTest, OtherTokenOfStepIsSeen) {
  const AnsweredRequest run =
      Run([](size_t step, const auto&, std::vector<Candidate>* candidates) {
        if (step == 2) (*candidates)[5].token = 59;
      });
  EXPECT_THAT(Compare(run), HasSubstr("from step 2 of 4 on: missing token"));
  EXPECT_EQ(NumExceptions(), 0);
}

TEST_P(AnsweredSearchTest, OtherScoreOfStepIsSeen) {
  const AnsweredRequest run =
      Run([](size_t step, const auto&, std::vector<Candidate>* candidates) {
        if (step == 2) candidates->front().cum_log_prob -= 0.01f;
      });
  EXPECT_THAT(Compare(run), HasSubstr("from step 2 of 4 on: token"));
  EXPECT_EQ(NumExceptions(), 0);
}

TEST_P(AnsweredSearchTest, SwappedRowsThatDoNotTieAreSeen) {
  const AnsweredRequest run =
      Run([](size_t step, const auto&, std::vector<Candidate>* candidates) {
        if (step != 2) return;
        for (Candidate& candidate : *candidates) {
          if (candidate.beam < 2) candidate.beam = 1 - candidate.beam;
        }
        std::ranges::stable_sort(*candidates, {}, &Candidate::beam);
      });
  EXPECT_THAT(Compare(run), HasSubstr("from step 2 of 4 on"));
  EXPECT_EQ(NumExceptions(), 0);
}

TEST_P(AnsweredSearchTest, MissingCandidateIsSeen) {
  const AnsweredRequest run =
      Run([](size_t step, const auto&, std::vector<Candidate>* candidates) {
        if (step == 2) candidates->erase(candidates->begin());
      });
  EXPECT_THAT(Compare(run), HasSubstr("from step 2 of 4 on: missing token"));
  EXPECT_EQ(NumExceptions(), 0);
}

// After the first step, the second beam is raised to the first one, `apart`
// from a tie.
TEST_P(AnsweredSearchTest, BeamsThatTieMayChangePlaces) {
  const AnsweredSearch search(request_, Run().steps);
  const TokenId first = search.beams(1)[0][0], second = search.beams(1)[1][0];
  const auto run = [&](float apart) {
    return Run([&, apart](size_t step, const PlanSelection& selection,
                          std::vector<Candidate>* candidates) {
      if (step != 0) return;
      const auto at = [&](TokenId token) {
        return std::ranges::find(*candidates, token, &Candidate::token);
      };
      at(second)->cum_log_prob = at(first)->cum_log_prob + apart;
      if (GetParam() == Kind::kStochastic) {
        at(second)->cum_log_prob +=
            NoiseOf(selection, 0, first) - NoiseOf(selection, 0, second);
      }
      if (!draws()) {
        std::ranges::stable_sort(*candidates, std::greater(),
                                 &Candidate::cum_log_prob);
      }
    });
  };
  const AnsweredRequest expected = run(-1e-5f);
  EXPECT_EQ(CompareAnswers(request_, expected, run(1e-5f), &counts_), "");
  EXPECT_EQ(counts_.num_late_ties, 1);
  EXPECT_THAT(CompareAnswers(request_, expected, run(0.01f), &counts_),
              HasSubstr("from step 0 of 4 on"));
  EXPECT_EQ(NumExceptions(), 1);
}

INSTANTIATE_TEST_SUITE_P(Kinds, AnsweredSearchTest,
                         ::testing::Values(Kind::kStochastic, Kind::kSampled,
                                           Kind::kDiverse,
                                           Kind::kDiverseWithStops));

// Another token than the search's in its first step, whose sum is larger by
// what `run` is given: a tie if that is little, else unexpected.
void ExpectTieIfClose(const PreparedRequest& request,
                      const std::function<AnsweredRequest(float)>& run) {
  const AnsweredRequest expected = RunOf(request, nullptr);
  AnswerCounts counts;
  EXPECT_EQ(CompareAnswers(request, expected, run(1e-5f), &counts), "");
  EXPECT_EQ(counts.num_near_ties, 1);
  EXPECT_THAT(CompareAnswers(request, expected, run(0.01f), &counts),
              HasSubstr("from step 0 of 4 on: unexpected token"));
  EXPECT_EQ(counts.num_near_ties + counts.num_late_ties, 1);
}

// The last of the drawn candidates may be another one with the same sum.
TEST(DrawnSearchTest, LastCandidateMayBeAnother) {
  for (const Kind kind : {Kind::kStochastic, Kind::kSampled}) {
    const PreparedRequest request = RequestOf(kind);
    const auto run = [&](float above) {
      return RunOf(request, [&, above](size_t step,
                                       const PlanSelection& selection,
                                       std::vector<Candidate>* candidates) {
        if (step != 0) return;
        const auto sum = [&](const Candidate& candidate) {
          return candidate.cum_log_prob +
                 NoiseOf(selection, 0, candidate.token);
        };
        Candidate& last = *std::ranges::min_element(*candidates, {}, sum);
        TokenId other = 1;
        while (std::ranges::count(*candidates, other, &Candidate::token) > 0) {
          ++other;
        }
        last = {.beam = 0,
                .token = other,
                .cum_log_prob = static_cast<float>(
                    sum(last) - NoiseOf(selection, 0, other) + above)};
      });
    };
    ExpectTieIfClose(request, run);
  }
}

TEST(DiverseSearchTest, LastCandidateOfRowMayBeAnother) {
  const PreparedRequest request = RequestOf(Kind::kDiverseWithStops);
  const auto run = [&](float above) {
    return RunOf(request, [above](size_t step, const auto&,
                                  std::vector<Candidate>* candidates) {
      if (step != 0) return;
      TokenId other = 1;
      while (std::ranges::count(*candidates, other, &Candidate::token) > 0) {
        ++other;
      }
      candidates->back().token = other;
      candidates->back().cum_log_prob += above;
    });
  };
  ExpectTieIfClose(request, run);
}

// Rows come best first, and diverse beams are merged by that.
TEST(DiverseSearchTest, OtherBeamsThatDoNotTieAreSeen) {
  for (const Kind kind : {Kind::kDiverse, Kind::kDiverseWithStops}) {
    const PreparedRequest request = RequestOf(kind);
    const AnsweredRequest actual =
        RunOf(request, [](size_t step, const PlanSelection&,
                          std::vector<Candidate>* candidates) {
          if (step == 0) std::swap(candidates->front(), candidates->back());
        });
    AnswerCounts counts;
    EXPECT_THAT(
        CompareAnswers(request, RunOf(request, nullptr), actual, &counts),
        HasSubstr("from step 1 on: that of rank"));
  }
}

using CandidatesEdit = std::function<void(std::vector<Candidate>*)>;

PreparedRequest FilteredRequest(Kind kind) {
  GenerationParams params = RequestOf(kind).request.params;
  params.top_p = 0.9;
  return PreparedRequest({.prompt_tokens = {1}, .params = params},
                         SharedEnFrTokenizer());
}

// With the candidates of the first step edited, from the least likely on.
AnsweredRequest FilteredRun(const PreparedRequest& request,
                            const CandidatesEdit& edit) {
  return RunOf(request, [&](size_t step, const PlanSelection&,
                            std::vector<Candidate>* candidates) {
    if (step != 0) return;
    std::ranges::stable_sort(*candidates, {}, &Candidate::cum_log_prob);
    edit(candidates);
  });
}

TEST(FilteredSearchTest, FilterExcusesOnlyItsBorder) {
  for (const Kind kind : {Kind::kStochastic, Kind::kSampled}) {
    const PreparedRequest request = FilteredRequest(kind);
    AnswerCounts counts;
    const auto compare = [&](const CandidatesEdit& edit) {
      return CompareAnswers(request, FilteredRun(request, [](auto*) {}),
                            FilteredRun(request, edit), &counts);
    };
    EXPECT_EQ(compare([](auto*) {}), "");
    EXPECT_EQ(counts.num_filtered_ties, 0);
    EXPECT_EQ(compare([](auto* c) { c->erase(c->begin()); }), "");
    EXPECT_EQ(counts.num_filtered_ties, 1);
    EXPECT_THAT(compare([](auto* c) { c->pop_back(); }),
                HasSubstr("from step 0 of 4 on: missing token"));
    EXPECT_THAT(compare([](auto* c) { c->back().cum_log_prob -= 0.01f; }),
                HasSubstr("from step 0 of 4 on: token"));
    EXPECT_EQ(counts.num_filtered_ties, 1);
  }
}

// Stochastic scores are normalized over the tokens that the filter keeps.
TEST(FilteredSearchTest, FilterShiftsScoresOfRowAlike) {
  AnswerCounts counts;
  const auto shifted = [&](Kind kind, float shift) {
    const PreparedRequest request = FilteredRequest(kind);
    const CandidatesEdit shift_all = [shift](auto* candidates) {
      for (Candidate& candidate : *candidates) candidate.cum_log_prob += shift;
    };
    return CompareAnswers(request, FilteredRun(request, [](auto*) {}),
                          FilteredRun(request, shift_all), &counts);
  };
  EXPECT_EQ(shifted(Kind::kStochastic, 0.05f), "");
  EXPECT_EQ(counts.num_filtered_ties, 1);
  EXPECT_THAT(shifted(Kind::kStochastic, 0.8f),
              HasSubstr("from step 0 of 4 on: token"));
  EXPECT_THAT(shifted(Kind::kSampled, 0.05f),
              HasSubstr("from step 0 of 4 on: token"));
  EXPECT_EQ(counts.num_filtered_ties, 1);
}

// By so little that it is within rounding of all scores of the row but one.
TEST(FilteredSearchTest, SmallShiftOfRowIsSeenInItsBestScores) {
  AnswerCounts counts;
  const PreparedRequest request = FilteredRequest(Kind::kStochastic);
  const auto run = [&](float shift) {
    return FilteredRun(request, [shift](auto* candidates) {
      for (Candidate& candidate : *candidates) {
        candidate.cum_log_prob -= 8;
      }
      const auto best =
          std::ranges::max_element(*candidates, {}, &Candidate::token);
      best->cum_log_prob = -0.5f;
      for (Candidate& candidate : *candidates) candidate.cum_log_prob += shift;
    });
  };
  EXPECT_EQ(CompareAnswers(request, run(0), run(1.65e-4f), &counts), "");
  EXPECT_EQ(counts.num_filtered_ties, 1);
}

// The first row has two candidates, far below the parent's sum: the higher one
// gets the parent's sum, and the other one as much less as it was below the
// higher one.
AnsweredRequest RunOfTwoChildren(const PreparedRequest& request,
                                 float distance) {
  return RunOf(request, [distance](size_t step, const PlanSelection& selection,
                                   std::vector<Candidate>* candidates) {
    if (step != 3) return;
    std::erase_if(*candidates, [](const Candidate& c) { return c.beam == 0; });
    const double sum =
        std::get<KeepAcrossRows>(selection.as_rows()->ranking).maxima[0] - 12;
    const auto child = [&](TokenId token, double below) {
      return Candidate{.beam = 0,
                       .token = token,
                       .cum_log_prob = static_cast<float>(
                           sum - below - NoiseOf(selection, 0, token))};
    };
    candidates->insert(candidates->begin(), {child(7, 0), child(8, distance)});
  });
}

TEST(DrawnSearchTest, AmplifiedScoresAreCounted) {
  const PreparedRequest request = RequestOf(Kind::kStochastic);
  const AnsweredRequest expected = RunOfTwoChildren(request, 2e-6f);
  AnswerCounts counts;
  AnsweredRequest actual = RunOfTwoChildren(request, 8e-6f);
  EXPECT_EQ(CompareAnswers(request, expected, actual, &counts), "");
  EXPECT_EQ(counts.num_amplified, 1);
  EXPECT_EQ(counts.num_stochastic_scores, 12);
  EXPECT_EQ(counts.num_near_ties + counts.num_late_ties, 0);
  EXPECT_EQ(counts.AboveBounds(), "");
  // Not of the answers.
  actual.result.hypotheses[5].score += 0.001f;
  EXPECT_THAT(CompareAnswers(request, expected, actual, &counts),
              HasSubstr("hypothesis 5: score"));
  // Nor from answers that are others.
  EXPECT_THAT(CompareAnswers(request, expected, RunOfTwoChildren(request, 0.1f),
                             &counts),
              HasSubstr("from step 3 of 4 on"));
  EXPECT_EQ(counts.num_amplified, 1);
  counts.num_amplified = 3;
  EXPECT_THAT(counts.AboveBounds(), HasSubstr("3 amplified scores of 12"));
}

}  // namespace
}  // namespace espalier::testing
