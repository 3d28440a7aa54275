// Trace events: the steps of a search as data. Engines send events to a
// TraceSink if they have one (SchedulerOptions::trace,
// GeneratorOptions::trace); without one, tracing costs nothing. trace_json.h
// writes events to a file and reads them back; `espalier trace` draws them
// (docs/trace.md).
//
// A request's events come in this order; events of several requests interleave:
//
//   TraceRequest                        once
//   TracePages, then TraceCandidates    each step: pages held while it ran, and
//                                       the candidates of its result, best
//                                       first
//   TraceLegal                          with a constraint, before candidates
//                                       that follow its nodes
//   TracePreempted, later TraceResumed  at each preemption, before the pages of
//                                       the step for which it resumed
//   TraceEnd                            once
//
// Candidates are the nodes of a tree of tokens, numbered from 0 within their
// request; the root, -1, is the prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/json.h"
#include "request/request.h"

namespace espalier {

// A node of a request's tree of candidates, or the root.
inline constexpr int kTraceRoot = -1;

// A request was admitted.
struct TraceRequest {
  RequestId request = {};
  std::optional<std::string> caller_id = {};  // Request::caller_id
  std::string strategy = {};                  // "greedy", "beams", "samples"
  json::object params = {};  // the fields of the request format that matter
  std::vector<TokenId> prompt_tokens = {};
  std::string prompt = {};  // their text; empty if not known
  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

// Returns the event of a request that has passed ValidateRequest.
TraceRequest DescribeRequest(RequestId id, const Request& request);

// Outcome of a candidate.
enum class CandidateFate { kKept, kPruned, kFinished };
// Returns "kept", "pruned" or "finished".
std::string_view Name(CandidateFate fate);

// A candidate of a step: a possible continuation of a live sequence.
struct TraceCandidate {
  RequestId request = {};
  int step = 1;             // tokens generated, this one included; from 1
  int node = 0;             // its number: 0, 1, 2, ... in the order of events
  int parent = kTraceRoot;  // node it continues, kept in the previous step
  int parent_slot = 0;      // slot of the parent
  // Its slot from now on; unset unless it was kept.
  std::optional<int> slot = {};
  TokenId token = 0;
  std::string text = {};            // the token's; empty if not known
  float log_prob = 0;               // the token's, nats
  float cum_log_prob = 0;           // the path's, nats
  std::optional<float> score = {};  // set if it finished
  CandidateFate fate = CandidateFate::kKept;
  std::string why = {};  // "among the beams", "eos", ...
  friend bool operator==(const TraceCandidate&,
                         const TraceCandidate&) = default;
};

// The pages a live sequence holds.
struct TraceSlotPages {
  int slot = 0;
  int node = kTraceRoot;           // last node of the sequence
  std::vector<PageId> pages = {};  // after TracePages::shared, in order
  friend bool operator==(const TraceSlotPages&,
                         const TraceSlotPages&) = default;
};

// A copy of a page's first tokens, which a sequence continues.
struct TraceCopy {
  PageId from = {};
  PageId to = {};
  int num_tokens = 0;
  friend bool operator==(const TraceCopy&, const TraceCopy&) = default;
};

// The pages a request held while a step ran.
struct TracePages {
  RequestId request = {};
  int step = 1;                     // the step whose candidates follow
  std::vector<PageId> shared = {};  // every slot's table begins with these
  std::vector<TraceSlotPages> slots = {};  // live sequences
  // Pages after `shared`, in order, of each additional row that verifies drafts
  // (docs/speculation.md, "Beams").
  std::vector<std::vector<PageId>> drafts = {};
  // The pages above that come from the prefix tree, not filled by this request.
  std::vector<PageId> cached = {};
  // Copies since the previous step, except those that the device makes itself
  // in asynchronously scheduled steps.
  std::vector<TraceCopy> copied = {};
  int64_t num_held = 0;   // pages held by all requests
  int64_t num_pages = 0;  // size of the pool
  friend bool operator==(const TracePages&, const TracePages&) = default;
};

// The constraint of a request at the end of a live sequence, and the tokens
// that it allows there.
struct TraceLegalRow {
  int node = kTraceRoot;  // last node of the sequence
  int32_t state = 0;      // the constraint's, >= 0
  int32_t room = 1;       // tokens that max_new_tokens leaves, >= 1
  int num_legal = 0;      // tokens that may follow
  // The logarithm of the model's probability of all of them, nats; set if the
  // request asks for it and one of them is a candidate.
  std::optional<float> legal_log_mass = {};
  friend bool operator==(const TraceLegalRow&, const TraceLegalRow&) = default;
};

// The tokens that a step's candidates were chosen from, by live sequence. One
// event for a step, and one more for each draft token that a sample accepted.
struct TraceLegal {
  RequestId request = {};
  std::vector<TraceLegalRow> rows = {};
  friend bool operator==(const TraceLegal&, const TraceLegal&) = default;
};

// A request was preempted and released its pages.
struct TracePreempted {
  RequestId request = {};
  int step = 1;           // the next step with a result
  int64_t num_pages = 0;  // pages released
  // Last node of each live sequence, which from now on is in slot 0, 1, and so
  // on. Empty within the prompt.
  std::vector<int> nodes = {};
  friend bool operator==(const TracePreempted&,
                         const TracePreempted&) = default;
};

// A preempted request has its keys and values again.
struct TraceResumed {
  RequestId request = {};
  int step = 1;                   // the step whose pages follow
  int64_t num_cached_tokens = 0;  // found in the prefix tree
  int64_t num_fed_tokens = 0;     // computed again
  int64_t num_loaded_tokens = 0;  // loaded from host memory
  friend bool operator==(const TraceResumed&, const TraceResumed&) = default;
};

// A hypothesis of the result, or a sample.
struct TraceHypothesis {
  int node = 0;  // its last node
  float score = 0;
  std::string finish_reason = {};  // as in the request format
  friend bool operator==(const TraceHypothesis&,
                         const TraceHypothesis&) = default;
};

// A request ended.
struct TraceEnd {
  RequestId request = {};
  std::vector<TraceHypothesis> hypotheses =
      {};  // best first; none after an error
  std::optional<absl::Status> error = {};
  friend bool operator==(const TraceEnd&, const TraceEnd&) = default;
};

using TraceEvent =
    std::variant<TraceRequest, TraceCandidate, TracePages, TraceEnd,
                 TracePreempted, TraceResumed, TraceLegal>;

// Returns the request of an event.
RequestId RequestOf(const TraceEvent& event);

// Receives events as they happen, on the engine's strand. On() must not call
// the engine, and must handle its own errors.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void On(const TraceEvent& event) = 0;
};

}  // namespace espalier
