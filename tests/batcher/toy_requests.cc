#include "tests/batcher/toy_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "executor/host/report_logprobs.h"
#include "executor/host/select_all.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

int AnyInt(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

template <typename T>
T OneOf(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

void AddProcessors(std::mt19937& random, GenerationParams* params) {
  switch (AnyInt(random, 0, 9)) {
    case 0:
      params->repetition_penalty = 1.3;
      break;
    case 1:
      params->no_repeat_ngram_size = 2;
      break;
    case 2:
      params->bad_words_ids = {{1}, {2, 3}};
      break;
    case 3:
      params->min_new_tokens = std::min<int64_t>(3, *params->max_new_tokens);
      break;
    case 4:
      params->frequency_penalty = 0.5;
      params->logit_bias = {{3, -1.0}, {1, 0.5}};
      break;
    default:  // none
      break;
  }
}

void AddSampling(std::mt19937& random, GenerationParams* params) {
  params->seed = random();
  params->temperature = OneOf(random, {0.5, 1.0, 1.0, 3.0});
  params->top_k = OneOf(random, {0, 0, 3});
  params->top_p = OneOf(random, {1.0, 1.0, 0.8});
  params->min_p = OneOf(random, {0.0, 0.0, 0.05});
  params->typical_p = OneOf(random, {1.0, 1.0, 0.9});
}

void AddBeams(std::mt19937& random, GenerationParams* params) {
  params->num_beams = AnyInt(random, 1, 5);
  params->num_return_sequences = AnyInt(random, 1, params->num_beams);
  params->early_stopping = static_cast<EarlyStopping>(AnyInt(random, 0, 2));
  params->length_penalty = AnyInt(random, -1, 2);
}

// Beams of any kind, or samples; at most five.
void AddSearch(std::mt19937& random, GenerationParams* params) {
  switch (AnyInt(random, 0, 9)) {
    case 0:
    case 1:
      params->do_sample = true;
      params->num_return_sequences = AnyInt(random, 1, 3);
      params->best_of = params->num_return_sequences + AnyInt(random, 0, 2);
      return AddSampling(random, params);
    case 2:
      AddBeams(random, params);
      params->num_beams = 2 * AnyInt(random, 1, 2);
      params->num_return_sequences = AnyInt(random, 1, params->num_beams);
      params->num_beam_groups = 2;
      params->diversity_penalty = OneOf(random, {0.0, 0.5});
      return;
    case 3:
      AddBeams(random, params);
      params->do_sample = true;
      return AddSampling(random, params);
    case 4:
      params->stochastic = true;
      params->num_beams = AnyInt(random, 1, 4);
      params->num_return_sequences = AnyInt(random, 1, params->num_beams);
      return AddSampling(random, params);
    default:
      return AddBeams(random, params);
  }
}

// Ids that end sequences are no tokens of them.
void AllowSequences(std::mt19937& random, const ModelDescription& model,
                    GenerationParams* params) {
  std::vector<std::vector<int64_t>> sequences(AnyInt(random, 1, 8));
  for (std::vector<int64_t>& sequence : sequences) {
    sequence.resize(AnyInt(random, 1, *params->max_new_tokens));
    for (int64_t& token : sequence) {
      do {
        token = AnyInt(random, 0, model.vocab_size - 1);
      } while (std::ranges::count(model.eos_token_ids, token) > 0);
    }
  }
  params->allowed_sequences = std::move(sequences);
}

}  // namespace

Request RandomRequest(std::mt19937& random, const ModelDescription& model) {
  Request request;
  const int num_tokens = AnyInt(random, 1, 20);
  while (std::ssize(request.prompt_tokens) < num_tokens) {
    const int token = AnyInt(random, 1, model.vocab_size - 1);
    if (model.encoder && model.encoder->token_without_position == token) {
      continue;
    }
    request.prompt_tokens.push_back(token);
  }
  GenerationParams& params = request.params;
  params.max_new_tokens = AnyInt(random, 1, 12);
  AddSearch(random, &params);
  AddProcessors(random, &params);
  if (random() % 8 == 0) AllowSequences(random, model, &params);
  if (random() % 4 == 0) params.logprobs = AnyInt(random, 0, 3);
  if (random() % 4 == 0 && !model.encoder) {
    params.prompt_logprobs = AnyInt(random, 0, 3);
  }
  const absl::Status valid = ValidateRequest(model, &request);
  CHECK(valid.ok()) << valid.ToString();
  return request;
}

std::vector<Request> RandomRequests(int count, uint32_t seed,
                                    const ModelDescription& model) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(RandomRequest(random, model));
  }
  return requests;
}

absl::StatusOr<StepResult> RunPlan(Model& model, const StepPlan& plan) {
  const int vocab_size = model.description().vocab_size;
  std::vector<float> logits(plan.num_logits * vocab_size);
  const absl::Status status = model.Forward(plan, logits);
  if (!status.ok()) return status;
  ThreadPool pool;
  StepResult result;
  result.selections = SelectAll(plan, logits, vocab_size, pool);
  result.scorings = ScoreAll(plan, logits, vocab_size, pool);
  return result;
}

absl::StatusOr<StepResult> RunPlan(Model& model, StepPlan* plan,
                                   DraftModel* draft) {
  if (draft == nullptr) return RunPlan(model, *plan);
  StepDrafter drafter(Unowned(draft), model.description().page_size);
  StepDrafter::Step drafts;
  drafter.Begin(plan, &drafts);
  drafter.DraftForLater(&drafts);
  absl::StatusOr<StepResult> result = RunPlan(model, *plan);
  drafter.End(&drafts, &result);
  if (result.ok()) result->draft_time = {};  // runs must not differ by a clock
  return result;
}

PlanRunner::PlanRunner(Model* model, DraftModel* draft)
    : model_(model), groups_(model->description().page_size) {
  if (draft == nullptr) return;
  drafter_.emplace(Unowned(draft), model->description().page_size);
}

absl::StatusOr<StepResult> PlanRunner::Run(StepPlan plan) {
  StepDrafter::Step drafts;
  if (drafter_) {
    drafter_->Begin(&plan, &drafts);
    drafter_->DraftForLater(&drafts);
  }
  groups_.ExpandContinuations(&plan);
  absl::StatusOr<StepResult> result = RunPlan(*model_, plan);
  if (result.ok()) {
    groups_.Advance(*result);
  } else {
    groups_.DiscardFailedStep();
  }
  if (drafter_) drafter_->End(&drafts, &result);
  if (result.ok()) result->draft_time = {};  // runs must not differ by a clock
  return result;
}

void RunToEnd(Scheduler& scheduler, Model& model,
              const std::function<void(int)>& before_step, int plans_in_flight,
              DraftModel* draft) {
  PlanRunner runner(&model, draft);
  std::deque<absl::StatusOr<StepResult>> results;
  for (int step = 0;; ++step) {
    before_step(step);
    StepPlan plan = scheduler.Plan();
    const bool waits = plan.is_noop();
    if (!waits) results.push_back(runner.Run(std::move(plan)));
    if (results.empty()) break;
    if (!waits && results.size() < plans_in_flight) continue;
    scheduler.Advance(std::move(results.front()));
    results.pop_front();
  }
  CHECK_EQ(runner.num_groups(), 0) << "groups known when all is done";
}

absl::StatusOr<Result> RunAlone(const ToyModelOptions& options,
                                const Request& request,
                                std::shared_ptr<const Tokenizer> tokenizer) {
  ToyModel model(options);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  absl::StatusOr<Result> answer;
  scheduler.Submit(
      RequestId{0}, PreparedRequest(request, std::move(tokenizer)),
      [&](absl::StatusOr<Result> result) { answer = std::move(result); });
  RunToEnd(scheduler, model);
  return answer;
}

void ExpectNothingHeld(const Scheduler& scheduler) {
  EXPECT_EQ(scheduler.num_running(), 0);
  EXPECT_EQ(scheduler.num_waiting(), 0);
  EXPECT_EQ(scheduler.pool().num_in_use(), 0);
  EXPECT_EQ(scheduler.host_pool().num_held(), 0);
}

bool SameHypotheses(const Result& a, const Result& b) {
  const auto same = [](const Hypothesis& x, const Hypothesis& y) {
    return x.tokens == y.tokens && x.score == y.score &&
           x.cum_log_prob == y.cum_log_prob &&
           x.finish_reason == y.finish_reason && x.logprobs == y.logprobs &&
           x.beam_indices == y.beam_indices;
  };
  return std::equal(a.hypotheses.begin(), a.hypotheses.end(),
                    b.hypotheses.begin(), b.hypotheses.end(), same) &&
         a.usage.num_generated_tokens == b.usage.num_generated_tokens &&
         a.seed == b.seed && a.threshold == b.threshold &&
         a.prompt_logprobs == b.prompt_logprobs;
}

bool SameResult(const Result& a, const Result& b) {
  return SameHypotheses(a, b) && a.usage.num_steps == b.usage.num_steps;
}

}  // namespace espalier::testing
