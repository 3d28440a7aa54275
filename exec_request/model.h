// Model: what a caller's own model implements to get the whole engine. Two
// methods: what it is, and multi-query evaluation over pages.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "base/sole_use.h"
#include "exec_request/model_description.h"
#include "exec_request/step_plan.h"

namespace espalier {

class Model {
 public:
  virtual ~Model() = default;

  // Constant for the model's life.
  virtual const ModelDescription& description() const = 0;

  // Runs one plan. First, if the model keeps anything by sequence or page: for
  // each of plan.forks copy the parent's state to the child, drop the state of
  // plan.finished, and make plan.page_copies; and before these, if
  // description().num_host_slots is not 0, plan.page_saves and then
  // plan.page_loads. Then feed the rows' tokens
  // (writing what later steps need into the rows' pages) and fill
  //
  //   logits  [plan.num_logits, vocab_size]  f32  host  out
  //
  // A row's logits must not depend on the other rows of the plan, nor on how
  // its tokens were divided among plans. Called by one thread at a time; may
  // block, and should look at plan.stop every few milliseconds. plan.rows may
  // be empty where there is only state to drop, or a draft model to be asked.
  //
  // Errors: any, kCancelled where it gave up because of plan.stop; the requests
  // of this plan end with it, others go on. Forks
  // and ended sequences count as done all the same, and sequences may end that
  // the failed plan was the first to feed.
  virtual absl::Status Forward(const StepPlan& plan,
                               std::span<float> logits) = 0;

  // Of an executor, as long as it lives: the pages hold what it fed.
  SoleUse& sole_use() { return sole_use_; }

 private:
  SoleUse sole_use_;
};

}  // namespace espalier
