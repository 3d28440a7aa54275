// EventQueue: the events of one request between the engine and its reader. The
// engine never waits for a reader, and a reader that is slow, or never reads,
// costs no more than the request's own output: unread events are coalesced.
// Tokens and texts of one sample, or of the stable prefix, are appended to the
// unread event; a new state of the beams replaces the unread one. So a slow
// reader misses intermediate states of the beams, and nothing else.
//
// A reader may stop waiting just when it is served, so the last batch is kept
// until the reader's next Read confirms that it was received.
//
// Belongs to the engine's strand; a batch that was handed out is its reader's,
// on any thread.
//
//   queue.Extend(SampleEvent{...});  // what a step brought
//   queue.Flush();                   // to a reader that waits
//   queue.End(result);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "request/stream_event.h"

namespace espalier {

// What a reader gets at once.
struct EventBatch {
  std::vector<StreamEvent> events;
  // Set if nothing follows: how the request ended.
  std::optional<absl::Status> end = {};
};

class EventQueue {
 public:
  using Reader = std::function<void(std::shared_ptr<EventBatch>)>;

  void Extend(SampleEvent event);
  void Extend(StablePrefixEvent event);
  void Replace(BeamsEvent event);

  // The last event, or the error instead of it; flushes.
  void End(absl::StatusOr<Result> result);

  // Hands the unread events to the reader that waits, if there are both. Flush,
  // End and Read do not fail: only events need memory.
  void Flush();

  // Calls `reader` once: now if something waits, or as soon as it does; instead
  // of the one that waits, if there is one. `num_received` batches have got to
  // the reader so far: if the last one has not, it is the next again.
  // REQUIRES: all that were handed out but for the last have been received.
  void Read(int64_t num_received, Reader reader);

  // The error that the request ended with; OK before.
  const absl::Status& error() const { return error_; }

 private:
  bool empty() const;
  std::shared_ptr<EventBatch> Take();

  std::vector<SampleEvent> samples_;  // in the order of their oldest token
  std::vector<int> waiting_idx_;      // by sample: in samples_, or -1
  std::optional<StablePrefixEvent> prefix_;
  std::optional<BeamsEvent> beams_;
  std::optional<Result> result_;
  bool ended_ = false;
  absl::Status error_;
  Reader reader_;
  int64_t num_handed_out_ = 0;        // batches
  std::shared_ptr<EventBatch> last_;  // of these, until it is received
};

}  // namespace espalier
