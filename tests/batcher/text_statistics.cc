#include "tests/batcher/text_statistics.h"

#include <algorithm>
#include <deque>
#include <future>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/strategy/selection_options.h"
#include "executor/drafts/draft_model.h"
#include "executor/drafts/fill_drafts.h"
#include "executor/host/select_all.h"
#include "kernels/sample/sample.h"
#include "tests/batcher/blended_model.h"
#include "tests/p_value.h"

namespace espalier::testing {
namespace {

constexpr int kNumCells = 5 * 5 * 5 * 5;
static_assert(kToyVocabSize == 4 && kCountedTokens == 4);

ToyModelOptions TargetOptions(int num_pages) {
  return {.vocab_size = kToyVocabSize,
          .seed = 3,
          .eos_boost = -0.5f,
          .num_tokens_read = 2,
          .num_pages = num_pages,
          .has_shareable_pages = true};
}

// Has every pair of tokens but those with EOS, so that history has hints.
const std::vector<TokenId>& PromptTokens() {
  static const std::vector<TokenId> tokens = {1, 1, 2, 2, 3, 3, 1, 3, 2, 1, 2};
  return tokens;
}

bool EndsText(const SelectionParams& params, TokenId token) {
  return std::ranges::binary_search(params.processors.eos_token_ids, token);
}

// Runs the requests of a case.
class TextRun {
 public:
  TextRun(const TextCase& c, const ExecutorFault& fault)
      : fault_(fault),
        max_step_tokens_(c.max_step_tokens),
        plans_in_flight_(c.plans_in_flight) {}
  virtual ~TextRun() = default;

  virtual const ModelDescription& description() const = 0;
  int64_t num_preemptions() const { return num_preemptions_; }

  std::vector<Result> Run(std::span<const Request> requests) {
    std::vector<Result> results(requests.size());
    Scheduler scheduler(description(), {.max_running = 16,
                                        .max_step_tokens = max_step_tokens_,
                                        .validate_steps = false});
    for (size_t i = 0; i < requests.size(); ++i) {
      scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                       PreparedRequest(requests[i]),
                       [&results, i](absl::StatusOr<Result> result) {
                         CHECK(result.ok()) << result.status().ToString();
                         results[i] = *std::move(result);
                       });
    }
    std::deque<StepResult> answers;
    while (true) {
      StepPlan plan = scheduler.Plan();
      const bool waits = plan.is_noop();
      if (!waits) answers.push_back(RunStep(std::move(plan)));
      if (answers.empty()) break;
      if (!waits && answers.size() < plans_in_flight_) continue;
      scheduler.Advance(std::move(answers.front()));
      answers.pop_front();
    }
    num_preemptions_ = scheduler.stats().num_preemptions;
    return results;
  }

 protected:
  virtual StepResult RunStep(StepPlan plan) = 0;

  const ExecutorFault& fault_;

 private:
  const int max_step_tokens_;
  const size_t plans_in_flight_;
  int64_t num_preemptions_ = 0;
};

// Without an executor, so that faults see the logits.
class TextRunByHand : public TextRun {
 public:
  TextRunByHand(const TextCase& c, const ExecutorFault& fault)
      : TextRun(c, fault), model_(TargetOptions(c.num_pages)) {
    draft_ = *DraftModel::Create(MakeTextDraftModel(c.draft_distance),
                                 *ThreadPool::Create(1));
    description_ = model_.description();
    description_.limits.max_drafted_length = std::numeric_limits<int>::max();
  }
  ~TextRunByHand() override { CHECK_EQ(draft_->num_sequences(), 0); }

  const ModelDescription& description() const override { return description_; }

 private:
  StepResult RunStep(StepPlan plan) override {
    fault_.change_plan(&plan);
    std::vector<DraftedTokens> drafts = draft_->Run(plan).value();
    fault_.change_drafts(drafts);
    FillDrafts(model_.description().page_size, drafts, &plan);
    fault_.change_filled_plan(&plan);
    logits_.resize(size_t{1} * plan.num_logits * kToyVocabSize);
    const absl::Status status = model_.Forward(plan, logits_);
    CHECK(status.ok()) << status.ToString();
    StepResult result;
    result.selections = SelectAll(plan, logits_, kToyVocabSize, threads_);
    for (size_t i = 0; i < drafts.size(); ++i) {
      const DraftTarget& target = plan.drafting[i].verified_by;
      std::vector<int>& counts =
          result.selections[target.selection].num_drafted;
      counts.resize(plan.selections[target.selection].num_rows);
      counts[target.rank] = static_cast<int>(drafts[i].tokens.size());
    }
    fault_.change_result(plan, logits_, &result);
    return result;
  }

  ToyModel model_;
  std::unique_ptr<DraftModel> draft_;
  ModelDescription description_;
  ThreadPool threads_;
  std::vector<float> logits_;
};

class TextRunOn : public TextRun {
 public:
  TextRunOn(StepExecutor& executor, const TextCase& c,
            const ExecutorFault& fault)
      : TextRun(c, fault), executor_(executor) {}

  const ModelDescription& description() const override {
    return executor_.description();
  }

 private:
  StepResult RunStep(StepPlan plan) override {
    fault_.change_plan(&plan);
    std::promise<absl::StatusOr<StepResult>> done;
    executor_.Execute(plan, [&](absl::StatusOr<StepResult> result) {
      done.set_value(std::move(result));
    });
    absl::StatusOr<StepResult> result = done.get_future().get();
    CHECK(result.ok()) << result.status().ToString();
    fault_.change_result(plan, {}, &*result);
    return *std::move(result);
  }

  StepExecutor& executor_;
};

TextCounts Count(TextRun& run, const TextCase& c);

}  // namespace

void ShiftDraftLogits(StepPlan* plan) {
  for (size_t i = 0; i < plan->selections.size(); ++i) {
    if (plan->selections[i].as_draws() == nullptr) continue;
    for (DraftLogits& of_row :
         plan->selections.Edit(i).EditDraws().drafts.logits) {
      if (of_row.empty()) continue;
      std::vector<float> logits(of_row.values().begin(), of_row.values().end());
      std::ranges::rotate(logits, logits.begin() + kToyVocabSize);
      of_row = DraftLogits(std::move(logits));
    }
  }
}

std::shared_ptr<Model> MakeTextModel() {
  return std::make_shared<ToyModel>(TargetOptions(TextCase().num_pages));
}

std::shared_ptr<Model> MakeTextDraftModel(float distance) {
  ToyModelOptions draft = TargetOptions(2000);
  draft.page_size = 5;
  return std::make_shared<BlendedModel>(draft, /*other_seed=*/4, distance);
}

size_t CellOf(std::span<const TokenId> tokens) {
  size_t cell = 0;
  for (size_t i = 0; i < kCountedTokens; ++i) {
    const TokenId token = i < tokens.size() ? tokens[i] : kToyVocabSize;
    cell = cell * (kToyVocabSize + 1) + token;
  }
  return cell;
}

std::vector<double> EnumerateBeginnings(const Request& request) {
  const auto params =
      MakeSelectionParams(request.params, request.prompt_tokens);
  const ToyModelOptions model = TargetOptions(1);
  std::vector<double> joint(kNumCells);
  std::vector<TokenId> text = request.prompt_tokens;
  const size_t num_prompt = text.size();
  // By the list itself, not by the constraint that is made of it.
  const auto begins_allowed = [&](std::span<const TokenId> generated) {
    if (!request.params.allowed_sequences) return true;
    return std::ranges::any_of(
        *request.params.allowed_sequences,
        [&](const std::vector<int64_t>& sequence) {
          return sequence.size() >= generated.size() &&
                 std::ranges::equal(std::span(sequence).first(generated.size()),
                                    generated);
        });
  };
  const std::function<void(double)> extend = [&](double probability) {
    const std::span<const TokenId> generated =
        std::span(text).subspan(num_prompt);
    if (generated.size() == kCountedTokens ||
        (!generated.empty() && EndsText(*params, generated.back()))) {
      joint[CellOf(generated)] += probability;
      return;
    }
    std::vector<float> logits(kToyVocabSize);
    ToyLogits(model, text, logits);
    for (TokenId token = 0; token < kToyVocabSize; ++token) {
      text.push_back(token);
      if (!begins_allowed(std::span(text).subspan(num_prompt))) {
        logits[token] = -std::numeric_limits<float>::infinity();
      }
      text.pop_back();
    }
    const RowEdits edits =
        CollectEdits(params->processors, text,
                     static_cast<int>(generated.size()), kToyVocabSize);
    const std::vector<double> p = reference::DrawProbabilities(
        logits, {.params = params->sampling,
                 .repetition_penalty = params->processors.repetition_penalty,
                 .edits = edits.edits,
                 .is_allow_list = edits.is_allow_list});
    for (TokenId token = 0; token < kToyVocabSize; ++token) {
      if (p[token] == 0) continue;
      text.push_back(token);
      extend(probability * p[token]);
      text.pop_back();
    }
  };
  extend(1);
  return joint;
}

TextCounts CountTexts(const TextCase& c, const ExecutorFault& fault) {
  TextRunByHand run(c, fault);
  return Count(run, c);
}

TextCounts CountTextsOn(StepExecutor& executor, const TextCase& c,
                        const ExecutorFault& fault) {
  TextRunOn run(executor, c, fault);
  return Count(run, c);
}

namespace {

TextCounts Count(TextRun& run, const TextCase& c) {
  std::vector<Request> requests;
  int num_texts = 0;
  while (num_texts < c.num_texts) {
    Request& request = requests.emplace_back(PromptTokens(), c.params);
    request.params.max_new_tokens = c.max_new_tokens;
    request.params.seed = c.first_seed + requests.size();
    const absl::Status valid = ValidateRequest(run.description(), &request);
    CHECK(valid.ok()) << valid.ToString();
    if (c.params.allowed_sequences) {
      CHECK(std::ranges::all_of(*c.params.allowed_sequences,
                                [](const std::vector<int64_t>& sequence) {
                                  return sequence.size() > kCountedTokens;
                                }))
          << "a sequence that ends among the counted tokens";
    }
    num_texts += static_cast<int>(request.params.num_return_sequences);
  }
  const std::vector<double> joint = EnumerateBeginnings(requests[0]);
  std::vector<int64_t> counts(kNumCells);
  TextCounts counted;
  for (const Result& result : run.Run(requests)) {
    for (const Hypothesis& text : result.hypotheses) {
      ++counts[CellOf(text.tokens)];
    }
    counted.num_drafted += result.usage.num_drafted_tokens;
    counted.num_accepted += result.usage.num_accepted_tokens;
  }
  counted.num_preemptions = run.num_preemptions();
  counted.p_value = ChiSquarePValue(joint, counts);
  return counted;
}

}  // namespace

}  // namespace espalier::testing
