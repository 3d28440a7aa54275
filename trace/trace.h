// A trace: what a search did, step by step, as events. Engines hand events to
// a TraceSink when they are given one (SchedulerOptions::trace,
// GeneratorOptions::trace), and cost nothing otherwise. trace_json.h writes
// events to a file and reads them back; `espalier trace` draws them
// (docs/trace.md).
//
// A request's events come in this order, those of several requests mixed:
//
//   TraceRequest                        once
//   TracePages, then TraceCandidates    a step: what was held while it ran, and
//                                       what its answer came to, best first
//   TracePreempted, later TraceResumed  whenever it was preempted, before the
//                                       pages of the step it resumed for
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
  std::string prompt = {};  // what they spell; empty if not known
  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

// What there is to say of a request that has passed ValidateRequest.
TraceRequest DescribeRequest(RequestId id, const Request& request);

// What became of a candidate.
enum class CandidateFate { kKept, kPruned, kFinished };
// "kept", "pruned", "finished".
std::string_view Name(CandidateFate fate);

// A step's answer offered a continuation of a live sequence.
struct TraceCandidate {
  RequestId request = {};
  int step = 1;             // tokens generated, this one included; from 1
  int node = 0;             // its own: 0, 1, 2, ... in the order of events
  int parent = kTraceRoot;  // the node it continues, kept in the step before
  int parent_slot = 0;      // where the parent lived
  // Where it lives from now on; unset unless it was kept.
  std::optional<int> slot = {};
  TokenId token = 0;
  std::string text = {};            // the token's; empty if not known
  float log_prob = 0;               // of the token, nats
  float cum_log_prob = 0;           // of the path, nats
  std::optional<float> score = {};  // set if it finished
  CandidateFate fate = CandidateFate::kKept;
  std::string why = {};  // "among the beams", "eos", ...
  friend bool operator==(const TraceCandidate&,
                         const TraceCandidate&) = default;
};

// The pages a live sequence holds.
struct TraceSlotPages {
  int slot = 0;
  int node = kTraceRoot;           // the sequence's last
  std::vector<PageId> pages = {};  // after TracePages::shared, in order
  friend bool operator==(const TraceSlotPages&,
                         const TraceSlotPages&) = default;
};

// A copy of a page's first tokens, which a sequence goes on from.
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
  std::vector<TraceSlotPages> slots = {};  // of live sequences
  // Of each row beside these that verifies drafts (docs/speculation.md,
  // "Beams"): its pages after `shared`, in order.
  std::vector<std::vector<PageId>> drafts = {};
  // Of these pages: found in the prefix tree, not filled by this request.
  std::vector<PageId> cached = {};
  // Made since the step before. Those that a device makes by itself, for steps
  // planned ahead, are not told.
  std::vector<TraceCopy> copied = {};
  // Of the pool, by all requests; and its size.
  int64_t num_held = 0;
  int64_t num_pages = 0;
  friend bool operator==(const TracePages&, const TracePages&) = default;
};

// A request gave its pages back, to make room for others.
struct TracePreempted {
  RequestId request = {};
  int step = 1;           // the next that is answered
  int64_t num_pages = 0;  // that it held
  // The last of each live sequence. From now on the first lives in slot 0, the
  // second in slot 1, and so on. Empty within the prompt.
  std::vector<int> nodes = {};
  friend bool operator==(const TracePreempted&,
                         const TracePreempted&) = default;
};

// A request that had been preempted has its tokens again.
struct TraceResumed {
  RequestId request = {};
  int step = 1;                   // whose pages follow
  int64_t num_cached_tokens = 0;  // found in the prefix tree
  int64_t num_fed_tokens = 0;     // again
  int64_t num_loaded_tokens = 0;  // from host memory
  friend bool operator==(const TraceResumed&, const TraceResumed&) = default;
};

// A hypothesis of the result, or a sample.
struct TraceHypothesis {
  int node = 0;  // its last
  float score = 0;
  std::string finish_reason = {};  // as in the request format
  friend bool operator==(const TraceHypothesis&,
                         const TraceHypothesis&) = default;
};

// A request was answered.
struct TraceEnd {
  RequestId request = {};
  std::vector<TraceHypothesis> hypotheses =
      {};  // best first; none after an error
  std::optional<absl::Status> error = {};
  friend bool operator==(const TraceEnd&, const TraceEnd&) = default;
};

using TraceEvent = std::variant<TraceRequest, TraceCandidate, TracePages,
                                TraceEnd, TracePreempted, TraceResumed>;

// Which request an event is of.
RequestId RequestOf(const TraceEvent& event);

// Takes events as they happen, on the strand of the engine that they are of.
// It must not call the engine, and what goes wrong in it stays in it.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void On(const TraceEvent& event) = 0;
};

}  // namespace espalier
