// Log-probabilities of generated tokens and of prompts, as a caller sees them:
// against a full sort of the model's logits, and against the reference.
#include "kernels/logprobs/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "beam/strategy/selection_options.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "model/transformer_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/model/logprobs_examples.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Equal, or within rounding: a token may be impossible.
void ExpectClose(float a, float b) {
  if (a == b) return;
  EXPECT_NEAR(a, b, 1e-5);
}

// Compares a report on `token` after `history` with ToyLogits, by a full sort.
void ExpectReport(const ToyModelOptions& options,
                  std::span<const TokenId> history, TokenId token, int num_best,
                  const TokenLogProb& report) {
  std::vector<float> logits(options.vocab_size);
  ToyLogits(options, history, logits);
  const RowLogProbs row =
      reference::LogProbsOfRow(logits, std::span(&token, 1), num_best);
  EXPECT_EQ(report.token, token);
  ExpectClose(report.log_prob, row.tokens[0].log_prob);
  EXPECT_EQ(report.rank, row.tokens[0].rank);
  ASSERT_EQ(report.best.size(), row.best.size());
  for (size_t i = 0; i < row.best.size(); ++i) {
    EXPECT_EQ(report.best[i].token, row.best[i].token);
    ExpectClose(report.best[i].log_prob, row.best[i].log_prob);
  }
}

// Compares the reports on all of `tokens`, which follow `history`.
void ExpectReports(const ToyModelOptions& options, std::vector<TokenId> history,
                   std::span<const TokenId> tokens, int num_best,
                   std::span<const TokenLogProb> reports) {
  ASSERT_EQ(reports.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    ExpectReport(options, history, tokens[i], num_best, reports[i]);
    history.push_back(tokens[i]);
  }
}

ToyModelOptions AnyScoredModel(std::mt19937& random) {
  ToyModelOptions options;
  options.seed = random();
  options.vocab_size = 4 + static_cast<int>(random() % 40);
  options.impossible_percent = random() % 3 == 0 ? 20 : 0;
  options.num_pages = 2000;
  return options;
}

TEST(LogProbsTest, EveryTokenOfEveryHypothesisIsReported) {
  int num_reports = 0;
  for (uint32_t seed = 0; seed < testing::Cases(400, 66); ++seed) {
    std::mt19937 random(seed);
    const ToyModelOptions options = AnyScoredModel(random);
    Request request = RandomRequest(random, ToyModel(options).description());
    const int num_best = static_cast<int>(random() % 5);
    request.params.logprobs = num_best;
    const absl::StatusOr<Result> result = RunAlone(options, request);
    if (!result.ok()) continue;  // nothing was possible
    for (const Hypothesis& hypothesis : result->hypotheses) {
      ExpectReports(options, request.prompt_tokens, hypothesis.tokens, num_best,
                    hypothesis.logprobs);
      num_reports += static_cast<int>(hypothesis.tokens.size());
    }
  }
  EXPECT_GT(num_reports, testing::Cases(3000, 500));
}

// Returns the tokens that follow `begin` in some of the sequences, ascending.
std::vector<TokenId> NextOf(const std::vector<std::vector<int64_t>>& sequences,
                            std::span<const TokenId> begin) {
  std::set<TokenId> next;
  for (const std::vector<int64_t>& sequence : sequences) {
    if (sequence.size() > begin.size() &&
        std::equal(begin.begin(), begin.end(), sequence.begin())) {
      next.insert(static_cast<TokenId>(sequence[begin.size()]));
    }
  }
  return {next.begin(), next.end()};
}

// Whatever else changes the choice of tokens.
TEST(LogProbsTest, TheMassOfLegalTokensIsTheModelsOwn) {
  int num_reports = 0;
  for (uint32_t seed = 0; seed < testing::Cases(300, 60); ++seed) {
    std::mt19937 random(5000 + seed);
    const ToyModelOptions options = AnyScoredModel(random);
    Request request = RandomRequest(random, ToyModel(options).description());
    std::vector<std::vector<int64_t>> sequences(1 + random() % 12);
    for (std::vector<int64_t>& sequence : sequences) {
      sequence.resize(1 + random() % 4);
      for (int64_t& token : sequence) token = 1 + random() % 3;
    }
    GenerationParams& params = request.params;
    params.allowed_sequences = sequences;
    params.allowed_token_ids.reset();
    params.max_new_tokens.reset();
    params.min_new_tokens = 0;
    params.stop.clear();
    params.logprobs = 1;
    params.legal_log_mass = true;
    if (!ValidateRequest(ToyModel(options).description(), &request).ok()) {
      continue;
    }
    const absl::StatusOr<Result> result = RunAlone(options, request);
    if (!result.ok()) continue;  // nothing was possible
    for (const Hypothesis& hypothesis : result->hypotheses) {
      double sum = 0;
      std::vector<TokenId> text = request.prompt_tokens;
      for (size_t i = 0; i < hypothesis.tokens.size(); ++i) {
        std::vector<float> logits(options.vocab_size);
        ToyLogits(options, text, logits);
        const double twin = reference::LogMassOf(
            logits, NextOf(sequences, std::span(hypothesis.tokens).first(i)));
        ASSERT_TRUE(hypothesis.logprobs[i].legal_log_mass.has_value());
        EXPECT_NEAR(*hypothesis.logprobs[i].legal_log_mass, twin, 1e-5);
        sum += *hypothesis.logprobs[i].legal_log_mass;
        text.push_back(hypothesis.tokens[i]);
        ++num_reports;
      }
      EXPECT_EQ(hypothesis.legal_log_mass, static_cast<float>(sum));
    }
  }
  EXPECT_GT(num_reports, testing::Cases(600, 100));
}

bool TouchesScores(const GenerationParams& params) {
  return params.repetition_penalty != 1 || !params.logit_bias.empty() ||
         params.diversity_penalty != 0;
}

// Beam search agrees to the bit; samples may be rounded differently. Gumbel
// top-k beams sum other numbers: divided by the temperature, or of the filtered
// distribution.
TEST(LogProbsTest, SumToCumLogProbWhereNothingInterferes) {
  int num_sums = 0;
  for (uint32_t seed = 0; seed < testing::Cases(400, 66); ++seed) {
    std::mt19937 random(1000 + seed);
    const ToyModelOptions options = AnyScoredModel(random);
    Request request = RandomRequest(random, ToyModel(options).description());
    const GenerationParams& params = request.params;
    const bool gumbel_top_k =
        IsBeamSearch(params) && (params.do_sample || params.stochastic);
    if (gumbel_top_k || (IsBeamSearch(params) && TouchesScores(params)))
      continue;
    request.params.logprobs = 0;
    const absl::StatusOr<Result> result = RunAlone(options, request);
    if (!result.ok()) continue;
    for (const Hypothesis& hypothesis : result->hypotheses) {
      float sum = 0;
      for (const TokenLogProb& token : hypothesis.logprobs) {
        sum += token.log_prob;
      }
      if (IsBeamSearch(params)) {
        EXPECT_EQ(sum, hypothesis.cum_log_prob) << seed;
      } else {
        EXPECT_NEAR(sum, hypothesis.cum_log_prob, 1e-5 * (1 - sum)) << seed;
      }
      ++num_sums;
    }
  }
  EXPECT_GT(num_sums, testing::Cases(300, 50));
}

// Holds for beams of every kind, except for diversity penalties.
TEST(LogProbsTest, ProcessedOnesOfABeamSumToCumLogProb) {
  int num_sums = 0;
  for (uint32_t seed = 0; seed < testing::Cases(600, 66); ++seed) {
    std::mt19937 random(2000 + seed);
    const ToyModelOptions options = AnyScoredModel(random);
    Request request = RandomRequest(random, ToyModel(options).description());
    GenerationParams& params = request.params;
    if (!IsBeamSearch(params) || params.diversity_penalty != 0) continue;
    params.logprobs = 0;
    params.logprobs_mode = LogprobsMode::kProcessed;
    params.renormalize_logits = random() % 2 == 0;
    const absl::StatusOr<Result> result = RunAlone(options, request);
    if (!result.ok()) continue;
    for (const Hypothesis& hypothesis : result->hypotheses) {
      float sum = 0;
      for (const TokenLogProb& token : hypothesis.logprobs) {
        sum += token.log_prob;
      }
      EXPECT_NEAR(sum, hypothesis.cum_log_prob, 2e-5 * (1 + std::abs(sum)))
          << seed;
      ++num_sums;
    }
  }
  EXPECT_GT(num_sums, testing::Cases(300, 30));
}

// Compares samples with the twin of each position's distribution: after edits,
// temperature and filters, or without them for greedy tokens.
TEST(LogProbsTest, ProcessedOnesAreWhatASampleIsDrawnFrom) {
  int num_reports = 0;
  for (uint32_t seed = 0; seed < testing::Cases(600, 66); ++seed) {
    std::mt19937 random(3000 + seed);
    const ToyModelOptions options = AnyScoredModel(random);
    Request request = RandomRequest(random, ToyModel(options).description());
    GenerationParams& params = request.params;
    if (IsBeamSearch(params) || params.allowed_sequences) continue;
    params.logprobs = 3;
    params.logprobs_mode = LogprobsMode::kProcessed;
    const absl::StatusOr<Result> result = RunAlone(options, request);
    if (!result.ok()) continue;
    ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
    const auto selection = MakeSelectionParams(params);
    for (const Hypothesis& hypothesis : result->hypotheses) {
      std::vector<TokenId> text = request.prompt_tokens;
      ASSERT_EQ(hypothesis.logprobs.size(), hypothesis.tokens.size());
      for (size_t i = 0; i < hypothesis.tokens.size(); ++i) {
        std::vector<float> logits(options.vocab_size);
        ToyLogits(options, text, logits);
        const RowEdits edits =
            CollectEdits(selection->processors, text, static_cast<int>(i),
                         options.vocab_size);
        const std::vector<float> values = reference::TokenValues(
            logits, {.domain = ScoreDomain::kLogits,
                     .draw = {.params = selection->sampling,
                              .repetition_penalty =
                                  selection->processors.repetition_penalty,
                              .edits = edits.edits,
                              .is_allow_list = edits.is_allow_list}});
        const TokenLogProb& report = hypothesis.logprobs[i];
        ExpectClose(report.log_prob, values[hypothesis.tokens[i]]);
        EXPECT_EQ(report.rank, 1 + std::ranges::count_if(values, [&](float v) {
                                 return v > values[hypothesis.tokens[i]];
                               }));
        for (const TokenScore& best : report.best) {
          ExpectClose(best.log_prob, values[best.token]);
          EXPECT_FALSE(std::isinf(best.log_prob));
        }
        text.push_back(hypothesis.tokens[i]);
        ++num_reports;
      }
    }
  }
  EXPECT_GT(num_reports, testing::Cases(300, 30));
}

TEST(LogProbsTest, NothingIsReportedUnasked) {
  const ToyModelOptions options;
  Request request{{1, 2, 3}, {}};
  request.params.num_beams = 3;
  ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
  ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
  EXPECT_THAT(result.hypotheses[0].logprobs, IsEmpty());
  EXPECT_EQ(result.prompt_logprobs, std::nullopt);
}

TEST(LogProbsTest, APromptOfOneTokenHasNone) {
  const ToyModelOptions options;
  Request request{{1}, {}};
  request.params.prompt_logprobs = 2;
  ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
  ASSERT_OK_AND_ASSIGN(const Result result, RunAlone(options, request));
  EXPECT_THAT(result.prompt_logprobs, ::testing::Optional(IsEmpty()));
}

// Runs requests together; no plan has more rows of logits than
// `max_logits_rows`.
std::vector<absl::StatusOr<Result>> RunTogether(
    const ToyModelOptions& options, const std::vector<Request>& requests,
    int max_step_tokens) {
  ToyModel model(options);
  const int max_logits_rows = options.limits.max_beams;
  Scheduler scheduler(model.description(), {.max_step_tokens = max_step_tokens,
                                            .validate_steps = true});
  std::vector<absl::StatusOr<Result>> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                     PreparedRequest(requests[i]),
                     [&, i](auto result) { results[i] = std::move(result); });
  }
  while (true) {
    const StepPlan plan = scheduler.Plan();
    EXPECT_LE(plan.num_logits, max_logits_rows);
    if (plan.is_noop()) break;
    scheduler.Advance(RunPlan(model, plan));
  }
  return results;
}

TEST(LogProbsTest, PromptsAreReportedHoweverTheyAreChunked) {
  for (uint32_t seed = 0; seed < testing::Cases(100, 20); ++seed) {
    std::mt19937 random(2000 + seed);
    ToyModelOptions options = AnyScoredModel(random);
    options.page_size = 1 + static_cast<int>(random() % 20);
    options.limits.max_beams = 10 + static_cast<int>(random() % 10);
    options.limits.max_step_tokens = 20;
    std::vector<Request> requests;
    const int num_best = static_cast<int>(random() % 5);
    for (int i = 0; i < 8; ++i) {
      requests.push_back(
          RandomRequest(random, ToyModel(options).description()));
      requests.back().params.prompt_logprobs = num_best;
    }
    for (const int max_step_tokens : {1, 7, 500}) {
      const auto results = RunTogether(options, requests, max_step_tokens);
      for (size_t i = 0; i < requests.size(); ++i) {
        if (!results[i].ok()) continue;  // nothing was possible
        const std::vector<TokenId>& prompt = requests[i].prompt_tokens;
        ASSERT_TRUE(results[i]->prompt_logprobs.has_value());
        ExpectReports(options, {prompt[0]}, std::span(prompt).subspan(1),
                      num_best, *results[i]->prompt_logprobs);
      }
    }
  }
}

// An executor that cannot do it, or does something else.
TEST(LogProbsTest, AnAnswerWithoutThemEndsTheRequest) {
  const auto break_selection = [](StepResult* result) {
    result->selections[0].logprobs.clear();
  };
  const auto break_scoring = [](StepResult* result) {
    result->scorings.clear();
  };
  const std::pair<std::function<void(StepResult*)>, const char*> cases[] = {
      {break_selection, "0 log-probabilities of 6 tokens"},
      {break_scoring, "a step of 1 scorings of prompts was answered with 0"}};
  for (const auto& [break_result, message] : cases) {
    ToyModel model({});
    Scheduler scheduler(model.description(), {});
    Request request{{1, 2, 3}, {}};
    request.params.num_beams = 3;
    request.params.logprobs = 2;
    request.params.prompt_logprobs = 2;
    ASSERT_OK(ValidateRequest(model.description(), &request));
    absl::StatusOr<Result> answer;
    scheduler.Submit(RequestId{0}, PreparedRequest(request),
                     [&](auto result) { answer = std::move(result); });
    ASSERT_OK_AND_ASSIGN(StepResult result, RunPlan(model, scheduler.Plan()));
    break_result(&result);
    scheduler.Advance(std::move(result));
    EXPECT_THAT(answer,
                StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
    EXPECT_EQ(scheduler.pool().num_held(), 0);
  }
}

// The report of one position. Neighbours in the reference may swap where they
// lie within the tolerance.
void ExpectLikeReference(const TokenLogProb& report,
                         const std::vector<TokenId>& tokens,
                         const std::vector<double>& log_probs) {
  constexpr double kTolerance = 1e-4;
  ASSERT_THAT(report.best, SizeIs(tokens.size()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(report.best[i].log_prob, log_probs[i], kTolerance);
  }
  const auto found = std::ranges::find(tokens, report.token);
  if (found == tokens.end()) {
    EXPECT_GE(report.rank, static_cast<int>(tokens.size()));
    EXPECT_LE(report.log_prob, log_probs.back() + kTolerance);
    return;
  }
  const auto place = found - tokens.begin();
  EXPECT_NEAR(report.log_prob, log_probs[place], kTolerance);
  ASSERT_LE(report.rank, std::ssize(log_probs));
  EXPECT_NEAR(log_probs[report.rank - 1], log_probs[place], kTolerance);
}

TEST(LogProbsTest, PromptsOfTheReferenceAreReportedAsItDoes) {
  const auto threads = MakePool(2);
  TransformerOptions options;
  options.kv_cache_bytes = int64_t{16} << 20;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<TransformerModel> model,
      TransformerModel::Load(SourcePath("models/en-fr"), options, threads));
  const std::vector<LogProbsExample> examples = ReadLogProbsExamples();
  ASSERT_THAT(examples, SizeIs(24));
  Scheduler scheduler(model->description(), {.max_step_tokens = 50});
  std::vector<Result> results(examples.size());
  for (size_t i = 0; i < examples.size(); ++i) {
    Request request{examples[i].tokens, {}};
    request.params.max_new_tokens = 1;
    request.params.prompt_logprobs = 12;
    ASSERT_OK(ValidateRequest(model->description(), &request));
    scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                     PreparedRequest(request),
                     [&, i](absl::StatusOr<Result> result) {
                       ASSERT_OK(result);
                       results[i] = *std::move(result);
                     });
  }
  RunToEnd(scheduler, *model);
  for (size_t i = 0; i < examples.size(); ++i) {
    ASSERT_TRUE(results[i].prompt_logprobs.has_value());
    const auto& reports = *results[i].prompt_logprobs;
    ASSERT_EQ(reports.size() + 1, examples[i].tokens.size());
    for (size_t t = 0; t < reports.size(); ++t) {
      SCOPED_TRACE(::testing::Message() << "example " << i << " token " << t);
      EXPECT_EQ(reports[t].token, examples[i].tokens[t + 1]);
      ExpectLikeReference(reports[t], examples[i].top_tokens[t],
                          examples[i].top_log_probs[t]);
    }
  }
}

}  // namespace
}  // namespace espalier
