// Model: what a caller's own model implements to get the whole engine. Two
// methods: what it is, and multi-query evaluation over pages.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/sole_use.h"
#include "exec_request/step_plan.h"

namespace espalier {

// What an executor has room and time for at a time. None of it is bounded by
// default; ModelExecutorOptions has the bounds of the host. One request that is
// beyond it is refused when it is submitted (ValidateRequest;
// Scheduler::Submit); requests together never are beyond it, because the
// scheduler lets the next one wait.
struct StepLimits {
  int max_step_tokens = std::numeric_limits<int>::max();  // >= max_beams
  // Of all that run; and so many lines of logits in a step.
  int max_beams = std::numeric_limits<int>::max();
  int max_eos_token_ids = std::numeric_limits<int>::max();  // of each request
  // Entries of TokenEdit lists (kernels/select/score_processors.h), of all that
  // run: one list for all beams of a request; where edits depend on histories
  // one for every beam besides, and an entry for every token of bad words.
  // Where it is said what may follow each row, one for every beam instead.
  int64_t max_score_edits = std::numeric_limits<int64_t>::max();
  // Candidates in answers (SelectionResult), of all that run; of no row more
  // than vocab_size.
  int64_t max_candidates = std::numeric_limits<int64_t>::max();
  // Tokens reported beside candidates (SelectionRule::num_logprobs of each), of
  // all that run.
  int64_t max_best_tokens = std::numeric_limits<int64_t>::max();
};

struct ModelDescription {
  int vocab_size = 0;   // tokens are [0, vocab_size)
  int max_context = 0;  // prompt and generated tokens together
  std::vector<TokenId> eos_token_ids = {};
  int default_max_new_tokens = 256;
  // The key/value memory it brought along: pages [0, num_pages) of page_size
  // tokens each.
  int num_pages = 0;
  int page_size = 16;
  StepLimits limits = {};  // set by the executor, if it has any
};

// What no engine can run with: that would end in a crash, not in refusals.
// Errors: kInvalidArgument naming the field and its value.
absl::Status CheckDescription(const ModelDescription& model);

class Model {
 public:
  virtual ~Model() = default;

  // Constant for the model's life.
  virtual const ModelDescription& description() const = 0;

  // Runs one plan. First, if the model keeps anything by sequence or page: for
  // each of plan.forks copy the parent's state to the child, drop the state of
  // plan.finished, and make plan.page_copies. Then feed the rows' tokens
  // (writing what later steps need into the rows' pages) and fill
  //
  //   logits  [plan.num_logits, vocab_size]  f32  host  out
  //
  // A row's logits must not depend on the other rows of the plan, nor on how
  // its tokens were divided among plans. Called by one thread at a time; may
  // block, and should look at plan.stop every few milliseconds. plan.rows may
  // be empty when there is only state to drop.
  //
  // Errors: any, kCancelled where it gave up because of plan.stop; the requests
  // of this plan end with it, others go on. Forks
  // and ended sequences count as done all the same, and sequences may end that
  // the failed plan was the first to feed.
  virtual absl::Status Forward(const StepPlan& plan,
                               std::span<float> logits) = 0;

  // Of an executor, as long as it lives: it knows what the pages hold.
  SoleUse& sole_use() { return sole_use_; }

 private:
  SoleUse sole_use_;
};

}  // namespace espalier
