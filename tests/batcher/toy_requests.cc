#include "tests/batcher/toy_requests.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"
#include "exec_request/report_logprobs.h"
#include "exec_request/select_all.h"

namespace espalier::testing {
namespace {

int Uniform(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

void AddProcessors(std::mt19937& random, GenerationParams* params) {
  switch (Uniform(random, 0, 5)) {
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
    default:  // none
      break;
  }
}

}  // namespace

Request RandomRequest(std::mt19937& random, const ModelDescription& model) {
  Request request;
  const int num_tokens = Uniform(random, 1, 20);
  for (int i = 0; i < num_tokens; ++i) {
    request.prompt_tokens.push_back(Uniform(random, 1, model.vocab_size - 1));
  }
  GenerationParams& params = request.params;
  params.num_beams = Uniform(random, 1, 5);
  params.num_return_sequences = Uniform(random, 1, params.num_beams);
  params.max_new_tokens = Uniform(random, 1, 12);
  params.early_stopping = static_cast<EarlyStopping>(Uniform(random, 0, 2));
  params.length_penalty = Uniform(random, -1, 2);
  AddProcessors(random, &params);
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
  ThreadPool pool(1);
  StepResult result;
  result.selections = SelectAll(plan, logits, vocab_size, pool);
  result.scorings = ScoreAll(plan, logits, vocab_size, pool);
  return result;
}

PlanRunner::PlanRunner(Model* model)
    : model_(model), groups_(model->description().page_size) {}

absl::StatusOr<StepResult> PlanRunner::Run(StepPlan plan) {
  groups_.WriteOut(&plan);
  absl::StatusOr<StepResult> result = RunPlan(*model_, plan);
  if (result.ok()) {
    groups_.Advance(*result);
  } else {
    groups_.Lose();
  }
  return result;
}

void RunToEnd(Scheduler& scheduler, Model& model,
              const std::function<void(int)>& before_step,
              int plans_in_flight) {
  PlanRunner runner(&model);
  std::deque<absl::StatusOr<StepResult>> results;
  for (int step = 0;; ++step) {
    before_step(step);
    StepPlan plan = scheduler.Plan();
    const bool waits = plan.says_nothing();
    if (!waits) results.push_back(runner.Run(std::move(plan)));
    if (results.empty()) break;
    if (!waits && results.size() < plans_in_flight) continue;
    scheduler.Advance(std::move(results.front()));
    results.pop_front();
  }
  CHECK_EQ(runner.num_groups(), 0) << "groups known when all is done";
}

absl::StatusOr<Result> RunAlone(const ToyModelOptions& options,
                                const Request& request) {
  ToyModel model(options);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  absl::StatusOr<Result> answer;
  scheduler.Submit(RequestId{0}, request, [&](absl::StatusOr<Result> result) {
    answer = std::move(result);
  });
  RunToEnd(scheduler, model);
  return answer;
}

bool SameResult(const Result& a, const Result& b) {
  const auto same = [](const Hypothesis& x, const Hypothesis& y) {
    return x.tokens == y.tokens && x.score == y.score &&
           x.cum_log_prob == y.cum_log_prob &&
           x.finish_reason == y.finish_reason;
  };
  return std::equal(a.hypotheses.begin(), a.hypotheses.end(),
                    b.hypotheses.begin(), b.hypotheses.end(), same) &&
         a.usage.num_steps == b.usage.num_steps &&
         a.usage.num_generated_tokens == b.usage.num_generated_tokens;
}

}  // namespace espalier::testing
