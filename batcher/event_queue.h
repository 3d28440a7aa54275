// EventQueue: the events of one request between the engine and its reader. The
// engine never waits for a reader, and a reader that is slow, or never reads,
// costs no more than the request's own output: unread events are coalesced.
// Tokens and texts of one sample, or of the stable prefix, are appended to the
// unread event; a new state of the beams replaces the unread one. So a slow
// reader misses intermediate states of the beams, and nothing else.
//
// A reader may stop waiting just when it receives a batch, so the last batch is
// kept until the reader's next Read confirms it.
//
// Belongs to the engine's strand. A batch that was handed out belongs to its
// reader, on any thread.
//
//   queue.Extend(SampleEvent{...});  // output of a step
//   queue.Flush();                   // to a waiting reader
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

// Events that a reader receives at once.
struct EventBatch {
  std::vector<StreamEvent> events;
  // Set if nothing follows: the status of the request.
  std::optional<absl::Status> end = {};
};

class EventQueue {
 public:
  using Reader = std::function<void(std::shared_ptr<EventBatch>)>;

  void Extend(SampleEvent event);
  void Extend(StablePrefixEvent event);
  void Replace(BeamsEvent event);

  // Adds the result as the last event, or ends with the error; flushes.
  void End(absl::StatusOr<Result> result);

  // Hands the unread events to the waiting reader, if there are both. Flush,
  // End and Read do not fail: only events need memory.
  void Flush();

  // Calls `reader` once, now or as soon as there are events; it replaces a
  // waiting reader. `num_received` is the number of batches that the reader has
  // received: if the last batch is not among them, it is handed out again.
  // REQUIRES: all handed out batches but the last have been received.
  void Read(int64_t num_received, Reader reader);

  // Returns the error that ended the request; OK before.
  const absl::Status& error() const { return error_; }

 private:
  bool empty() const;
  std::shared_ptr<EventBatch> Take();

  std::vector<SampleEvent> samples_;  // in the order of their oldest token
  std::vector<int> waiting_idx_;      // index in samples_ by sample, or -1
  std::optional<StablePrefixEvent> prefix_;
  std::optional<BeamsEvent> beams_;
  std::optional<Result> result_;
  bool ended_ = false;
  absl::Status error_;
  Reader reader_;
  int64_t num_handed_out_ = 0;        // batches
  std::shared_ptr<EventBatch> last_;  // kept until it is received
};

}  // namespace espalier
