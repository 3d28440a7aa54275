// Admission: decides which requests may run. A request waits for its turn until
// it fits beside the running ones: its prompt and first steps in pages, and its
// worst case in the executor's other limits (StepLimits). A request that does
// not fit even alone is refused when it arrives.
//
//   const RequestNeeds needs = admission.NeedsOf(prepared);
//   RETURN_IF_ERROR(admission.CheckFits(prepared, needs));
//   waiting.Push({turn, std::move(prepared), needs, done});
//   ...
//   if (admission.CanAdmit(waiting.front().needs, running, num_running)) ...
//
// Both classes belong to their scheduler's strand.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "batcher/scheduler/deadlines.h"
#include "batcher/scheduler/fair_turns.h"
#include "batcher/scheduler/scheduler_options.h"
#include "batcher/scheduler/too_few_pages.h"
#include "batcher/scheduler/turn.h"
#include "beam/prepared_request.h"
#include "beam/strategy/search_watcher.h"
#include "pages/page_pool.h"
#include "request/request.h"

namespace espalier {

// Worst case of a request: pages at any time, other resources in one step.
struct RequestNeeds {
  int64_t num_pages = 0;
  int64_t num_sequences = 0;   // live ones: rows
  int64_t num_widest = 0;      // largest num_sequences of several requests
  int64_t num_edits = 0;       // score edits
  int64_t num_candidates = 0;  // in its result
  int64_t num_best = 0;        // tokens reported beside candidates

  // Adds up the needs of both.
  RequestNeeds& operator+=(const RequestNeeds& other);
};

class Admission {
 public:
  // `pool` outlives this.
  Admission(const ModelDescription& model, const SchedulerOptions& options,
            const PagePool* pool);

  // Largest number of tokens fed in one step, within the limits.
  int max_step_tokens() const { return max_step_tokens_; }

  RequestNeeds NeedsOf(const PreparedRequest& prepared) const;
  // Lowers its draft length to fit the limits (prepared_request.h).
  void FitDrafts(PreparedRequest* prepared) const;

  // Errors: kResourceExhausted, marked as permanent, if the request does not
  // fit even alone, with its needs, the limits, and the options that cause
  // them; with kTooFewPages if it lacks pages.
  absl::Status CheckFits(const PreparedRequest& prepared,
                         const RequestNeeds& needs) const;

  // Returns the pages that a new request takes until each of its sequences has
  // begun its own page.
  int64_t NumPagesToStart(const Request& request) const;

  // True if `next` may run beside `num_running` requests with needs `running`,
  // by the limits of a step; ignores pages. The sum of all sequences must be at
  // most max(max_step_tokens, those of the widest request + max(max_step_tokens
  // / 4, 1)), so that a wide request does not exclude all others, and at most
  // the executor's max_beams.
  bool CanAdmit(const RequestNeeds& next, const RequestNeeds& running,
                int num_running) const;

 private:
  const StepLimits limits_;
  const int max_step_tokens_;
  const int max_running_;
  const int vocab_size_;
  const PagePool* const pool_;
};

struct WaitingRequest {
  Turn turn;
  PreparedRequest prepared;
  RequestNeeds needs;
  std::function<void(absl::StatusOr<Result>)> done;
  std::unique_ptr<SearchWatcher> watcher;  // may be null
  int64_t arrival = 0;                     // Scheduler::SetTime
  Deadlines::Entry deadline = {};
  // Its own turn or, if several tenants wait, that of another request of its
  // priority (fair_turns.h). Set by TakeFront.
  Turn runs_at = {};
};

// Queue of waiting requests, by turn, with fair shares for tenants. Every call
// but TakeAll is O(log n).
class WaitingRequests {
 public:
  bool empty() const { return requests_.empty(); }
  int size() const { return static_cast<int>(requests_.size()); }
  // Sums over all waiting requests.
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }

  // Throws std::bad_alloc, leaving the queue unchanged.
  // REQUIRES: the id of its turn is not in the queue.
  void Push(WaitingRequest request);

  // Returns the request that runs next; front_turn() is the turn that it takes.
  // REQUIRES: !empty().
  const WaitingRequest& front() const {
    return requests_.find(order_.NextRequest())->second;
  }
  const Turn& front_turn() const { return order_.next_turn(); }
  WaitingRequest TakeFront();

  // Returns nothing if no request with this id waits.
  std::optional<WaitingRequest> Take(RequestId id);
  // Returns all requests, by turn.
  std::vector<WaitingRequest> TakeAll();

 private:
  using Requests = std::map<Turn, WaitingRequest>;

  void Count(const WaitingRequest& request, int sign);
  WaitingRequest TakeOut(const Turn& turn);

  Requests requests_;
  FairTurns order_;
  std::unordered_map<RequestId, Turn> turns_;
  int64_t num_sequences_ = 0;
  int64_t num_prompt_tokens_ = 0;
};

}  // namespace espalier
