// CudaGroups: the host's view of the groups whose beams live on the device: the
// slots of each group, and the values last sent for it. Only the device has the
// live beams and their slots.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/small_vector.h"

namespace espalier {

struct CudaGroup {
  int first_slot = 0;
  int num_slots = 1;
  int num_shared_pages = 0;  // in front of the tables of all its slots
  int position = 0;          // fed by its last planned step
  int source_length = 0;     // EncoderInput::length; 0: no encoder
  std::vector<TokenId> eos_token_ids;
  // With a constraint: the position from which there is no room for tokens.
  int end_position = 0;
  // [num_slots], as on the device; empty if unknown.
  SmallVector<PageId> tail_pages;
};

// Slots [from, from + num_slots) become [to, to + num_slots), to < from.
struct CudaGroupMove {
  int from = 0;
  int to = 0;
  int num_slots = 0;
};

class CudaGroups {
 public:
  explicit CudaGroups(int num_slots) : num_slots_(num_slots) {}

  // Returns the request's group with `num_slots` slots: the existing one if it
  // has as many, otherwise a new one. Valid until it is dropped. If enough
  // slots are free but not contiguous, all groups are compacted (TakeMoves).
  // Errors: kResourceExhausted if too few slots are free.
  absl::StatusOr<CudaGroup*> Set(RequestId request, int num_slots);
  // Returns null if the request has no group.
  CudaGroup* Find(RequestId request);
  void Drop(RequestId request);
  void Clear();

  // Returns the pending moves. The device applies them in this order before any
  // slot is written.
  std::vector<CudaGroupMove> TakeMoves() { return std::exchange(moves_, {}); }

  int num_groups() const { return static_cast<int>(groups_.size()); }

 private:
  // Returns the first slot of the first free range of `count` slots, or -1.
  int FindRange(int count) const;
  // Moves all groups to the front, in order.
  void Compact();

  const int num_slots_;
  int num_used_ = 0;  // slots
  std::unordered_map<RequestId, CudaGroup> groups_;
  std::map<int, CudaGroup*> ranges_;  // by first slot
  std::vector<CudaGroupMove> moves_;
};

}  // namespace espalier
