// A model and an executor with random faults of all kinds, and the requests
// that a fault may have touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/status.h"
#include "exec_request/step_executor.h"
#include "executor/host/model_executor.h"
#include "request/request.h"
#include "tests/toy_model.h"
#include "tests/unowned.h"

namespace espalier::testing {

enum class Fault {
  kNone,
  // Faults of the model.
  kError,
  kErrorAfterGarbage,  // after writing garbage into the pages
  kThrow,
  kThrowANumber,
  kNoMemory,
  kNan,       // in all rows of one selection
  kInfinity,  // in one of them
  // Faults of the executor. All but the first run the step.
  kRefuse,
  kDrop,
  kTwice,
  kTooFew,
  kTooMany,
  kSwapped,
  kForeignToken,
  kNumFaults,
};

inline bool IsOfModel(Fault fault) {
  return fault > Fault::kNone && fault < Fault::kRefuse;
}

inline constexpr char kFaultMessage[] = "a fault of the test";

// Who a fault may have touched.
class Victims {
 public:
  void Add(RequestId id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ids_.insert(id.value);
  }
  // Adds all requests of a plan. Chunks without a selection do not name their
  // request; it is identified by its tokens.
  void AddAll(const StepPlan& plan, const std::vector<Request>& requests) {
    for (const PlanSelection& s : plan.selections) Add(s.request);
    for (const GroupContinuation& c : plan.continuations) Add(c.request);
    for (const PlanPromptLogprobs& s : plan.scorings) Add(s.request);
    const std::lock_guard<std::mutex> lock(mutex_);
    num_copies_ += std::ssize(plan.page_copies);
    for (const PlanRow& row : plan.rows) {
      if (row.num_logits > 0) continue;
      const auto tokens = plan.row_tokens(row);
      for (size_t i = 0; i < requests.size(); ++i) {
        if (MayFeed(requests[i], row.first_position, tokens)) ids_.insert(i);
      }
    }
  }
  bool Has(int64_t id) const { return ids_.contains(id); }
  // A group with only a page copy in the plan fails with it, too.
  int64_t num_copies() const { return num_copies_; }

 private:
  // True if the request may feed `tokens` at `first`. Only its prompt's tokens
  // are known.
  static bool MayFeed(const Request& request, size_t first,
                      std::span<const TokenId> tokens) {
    const std::vector<TokenId>& prompt = request.prompt_tokens;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (first + i >= prompt.size()) return true;
      if (prompt[first + i] != tokens[i]) return false;
    }
    return true;
  }

  std::mutex mutex_;
  std::set<int64_t> ids_;
  int64_t num_copies_ = 0;
};

class FaultyModel : public Model {
 public:
  FaultyModel(const ToyModelOptions& options, Victims* victims)
      : model_(options), description_(model_.description()), victims_(victims) {
    description_.has_shareable_pages = true;
  }

  const ModelDescription& description() const override { return description_; }

  // One for each call of Forward.
  void Push(Fault fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    faults_.push_back(fault);
  }

  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    switch (Pop()) {
      case Fault::kError:
        return absl::DataLossError(kFaultMessage);
      case Fault::kErrorAfterGarbage: {
        StepPlan garbage = plan;
        for (TokenId& token : garbage.tokens) {
          token = (token + 3) % description_.vocab_size;
        }
        RETURN_IF_ERROR(model_.Forward(garbage, logits));
        return absl::DataLossError(kFaultMessage);
      }
      case Fault::kThrow:
        throw std::runtime_error(kFaultMessage);
      case Fault::kThrowANumber:
        throw 7;
      case Fault::kNoMemory:
        throw std::bad_alloc();
      case Fault::kNan:
        return Spoil(plan, std::numeric_limits<float>::quiet_NaN(), true,
                     logits);
      case Fault::kInfinity:
        return Spoil(plan, std::numeric_limits<float>::infinity(), false,
                     logits);
      default:
        return model_.Forward(plan, logits);
    }
  }

 private:
  Fault Pop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (faults_.empty()) return Fault::kNone;
    const Fault fault = faults_.front();
    faults_.erase(faults_.begin());
    return fault;
  }

  // The logits of one selection, or one of them.
  absl::Status Spoil(const StepPlan& plan, float value, bool all,
                     std::span<float> logits) {
    RETURN_IF_ERROR(model_.Forward(plan, logits));
    const auto found =
        std::ranges::find_if(plan.selections, [](const PlanSelection& s) {
          return s.num_rows > 0;  // not of a group that went too far ahead
        });
    if (found == plan.selections.end()) return absl::OkStatus();
    const PlanSelection& victim = *found;
    victims_->Add(victim.request);
    const size_t vocab_size = description_.vocab_size;
    const auto rows = logits.subspan(victim.first_logits * vocab_size,
                                     victim.num_rows * vocab_size);
    if (all) {
      std::ranges::fill(rows, value);
    } else {
      rows[vocab_size / 2] = value;
    }
    return absl::OkStatus();
  }

  ToyModel model_;
  ModelDescription description_;
  Victims* const victims_;
  std::mutex mutex_;
  std::vector<Fault> faults_;
};

class FaultyExecutor : public StepExecutor {
 public:
  FaultyExecutor(FaultyModel* model, bool run_ahead,
                 const std::vector<Request>* requests, Victims* victims,
                 uint32_t seed)
      : model_(model),
        steps_(MakeExecutor(model, 1, {.run_ahead = run_ahead})),
        requests_(requests),
        victims_(victims),
        random_(seed) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }
  void Execute(StepPlan plan, Done done) override {
    Fault fault = Fault::kNone;
    if (may_fail_ && !plan.empty() && random_() % 6 == 0) {
      fault = Fault(1 + random_() % (int(Fault::kNumFaults) - 1));
      ++num_faults_;
    }
    if (fault != Fault::kNan && fault != Fault::kInfinity &&
        fault != Fault::kTwice && fault != Fault::kNone) {
      victims_->AddAll(plan, *requests_);
    }
    // Executors are not informed of requests that a refused plan ends.
    if (fault == Fault::kRefuse) throw std::runtime_error(kFaultMessage);
    model_->Push(IsOfModel(fault) ? fault : Fault::kNone);
    steps_->Execute(std::move(plan), Spoilt(fault, std::move(done)));
  }

  void Recover() { may_fail_ = false; }
  int num_faults() const { return num_faults_; }

 private:
  static Done Spoilt(Fault fault, Done done) {
    if (fault == Fault::kDrop) return [done](const auto&) {};
    if (fault <= Fault::kRefuse) return done;
    return [fault, done](absl::StatusOr<StepResult> result) {
      if (fault == Fault::kTwice) done(result);
      if (result.ok()) SpoilAnswer(fault, &*result);
      done(std::move(result));
    };
  }
  static void SpoilAnswer(Fault fault, StepResult* result) {
    auto& selections = result->selections;
    if (fault == Fault::kTooMany) selections.emplace_back();
    if (selections.empty()) return;
    if (fault == Fault::kTooFew) selections.pop_back();
    if (fault == Fault::kSwapped) {
      std::swap(selections.front(), selections.back());
    }
    if (fault == Fault::kForeignToken && !selections[0].candidates.empty()) {
      selections[0].candidates[0].token = 1 << 20;
    }
  }

  FaultyModel* const model_;
  const std::shared_ptr<ModelExecutor> steps_;
  const std::vector<Request>* const requests_;
  Victims* const victims_;
  std::mt19937 random_;
  bool may_fail_ = true;
  int num_faults_ = 0;
};

}  // namespace espalier::testing
