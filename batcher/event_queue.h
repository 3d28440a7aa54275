// EventQueue: the events of one request between the engine and its reader. The
// engine never waits for a reader, and a reader who is slow, or never comes,
// costs no more than the request's own output: what is not read yet is merged.
// Tokens and texts of one sample, or of the agreed prefix, are appended to the
// event that waits; a new state of the beams replaces the one that waits. So a
// slow reader misses states between, and nothing else.
//
// A reader may stop waiting just when it is served, so what was handed out is
// kept until the reader, who comes back, says that it has got there.
//
// Belongs to the engine's strand; a batch that was handed out is its reader's,
// on any thread.
//
//   queue.Extend(SampleEvent{...});  // what a step brought
//   queue.Flush();                   // to a reader who waits
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

  // Hands what waits to the reader who waits, if there are both. It does not
  // fail, nor do End and Read: events are all that needs memory.
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
