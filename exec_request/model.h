// Model: the interface that a caller's own model implements to use the whole
// engine. It has two methods: a description, and multi-query evaluation over
// pages.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "base/sole_use.h"
#include "exec_request/step_plan.h"

namespace espalier {

class Model {
 public:
  virtual ~Model() = default;

  // Constant for the model's life.
  virtual const ModelDescription& description() const = 0;

  // Runs one plan. First, if the model keeps state by sequence or page: makes
  // plan.page_saves and then plan.page_loads, if description().num_host_slots
  // is not 0; copies each parent's state to the child for plan.forks; drops the
  // state of plan.finished; and makes plan.page_copies. Then feeds the rows'
  // tokens, writes the data that later steps need into the rows' pages, and
  // fills
  //
  //   logits  [plan.num_logits, vocab_size]  f32  host  out
  //
  // With an encoder it first reads each of plan.sources that is to be read
  // (PlanSource::is_read), and writes what cross-attention needs into the
  // source's pages. All rows attend to their source (StepPlan::source_of).
  //
  // A row's logits must not depend on the other rows of the plan, nor on how
  // its tokens were divided among plans. Called by one thread at a time. May
  // block, and should check plan.stop every few milliseconds. plan.rows may be
  // empty if the plan only drops state or drafts.
  //
  // Errors: any; kCancelled if it gave up because of plan.stop. The requests of
  // this plan end with the error, and others continue. Forks and ended
  // sequences count as done nevertheless. Later plans may end sequences that
  // only the failed plan fed.
  virtual absl::Status Forward(const StepPlan& plan,
                               std::span<float> logits) = 0;

  // As Forward, of a plan with alignments, which models have that describe
  // reported_attention. Fills, for each of plan.scorings that has one,
  //
  //   attention_scores[i]  [tokens, heads, num_positions]  f32  host  out
  //
  // where token j is the one whose row of logits is the scoring's j-th.
  // Errors: as Forward; kUnimplemented here.
  virtual absl::Status ForwardAligned(
      const StepPlan& /*plan*/, std::span<float> /*logits*/,
      std::span<std::vector<float>> /*attention_scores*/) {
    return absl::UnimplementedError("the model reports no cross-attention");
  }

  // Held by an executor for its whole life, because the pages hold its data.
  SoleUse& sole_use() { return sole_use_; }

 private:
  SoleUse sole_use_;
};

}  // namespace espalier
