// WaitingRequests: the requests that have not started, by turn, with fair
// shares for tenants (fair_turns.h). It decides the order alone; admission.h
// decides when the first one starts.
//
// Every call but TakeAll is O(log n). Belongs to its scheduler's strand.
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
#include "batcher/scheduler/admission_limits.h"
#include "batcher/scheduler/deadlines.h"
#include "batcher/scheduler/fair_turns.h"
#include "batcher/scheduler/turn.h"
#include "beam/prepared_request.h"
#include "beam/strategy/search_watcher.h"
#include "request/request.h"

namespace espalier {

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
