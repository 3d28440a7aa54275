// Admission: which requests may run. A request waits, in order of arrival,
// until its worst case fits beside the worst cases of those that run: of pages,
// and of what else the executor has limits for (StepLimits). One that does not
// fit even alone is refused when it arrives.
//
//   const RequestNeeds needs = admission.NeedsOf(prepared);
//   RETURN_IF_ERROR(admission.CheckFits(prepared.request, needs));
//   waiting.Push({id, std::move(prepared), needs, done});
//   ...
//   if (admission.CanAdmit(waiting.front().needs, running, num_running)) ...
//
// Both belong to their scheduler's strand.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "batcher/engine_options.h"
#include "batcher/too_few_pages.h"
#include "beam/prepared_request.h"
#include "beam/search_watcher.h"
#include "exec_request/model_description.h"
#include "pages/page_pool.h"
#include "request/request.h"

namespace espalier {

// What a request takes at worst: of pages at any time, of the rest in a step.
struct RequestNeeds {
  int64_t num_pages = 0;
  int64_t num_sequences = 0;   // that live: rows
  int64_t num_edits = 0;       // of scores
  int64_t num_candidates = 0;  // of its answer
  int64_t num_best = 0;        // tokens reported beside these

  RequestNeeds& operator+=(const RequestNeeds& other);
};

class Admission {
 public:
  // `pool` outlives this.
  Admission(const ModelDescription& model, const SchedulerOptions& options,
            const PagePool* pool);

  // Tokens fed in one step, within the limits.
  int max_step_tokens() const { return max_step_tokens_; }

  RequestNeeds NeedsOf(const PreparedRequest& prepared) const;

  // Errors: kResourceExhausted if the request fits not even alone, with what it
  // needs, what there is, and which options make it so; with kTooFewPages if it
  // lacks pages.
  absl::Status CheckFits(const Request& request,
                         const RequestNeeds& needs) const;

  // Whether `next` may run beside `num_running` requests that need `running`
  // together. Its pages can be reserved then.
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
  RequestId id;
  PreparedRequest prepared;
  RequestNeeds needs;
  std::function<void(absl::StatusOr<Result>)> done;
  std::unique_ptr<SearchWatcher> watcher;  // null if nobody watches
};

// The requests that wait, in order of arrival. Every call costs the same
// however many there are, except TakeAll.
class WaitingRequests {
 public:
  bool empty() const { return requests_.empty(); }
  int size() const { return static_cast<int>(requests_.size()); }

  // Throws std::bad_alloc, and the queue is unchanged then.
  // REQUIRES: its id is not in the queue.
  void Push(WaitingRequest request);

  // REQUIRES: !empty().
  const WaitingRequest& front() const { return requests_.front(); }
  WaitingRequest TakeFront();

  // Nothing if no request with this id waits.
  std::optional<WaitingRequest> Take(RequestId id);
  std::list<WaitingRequest> TakeAll();

 private:
  using Requests = std::list<WaitingRequest>;

  Requests requests_;
  std::unordered_map<RequestId, Requests::iterator> by_id_;
};

}  // namespace espalier
