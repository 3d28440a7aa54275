// CudaGroups: the host's view of the groups whose beams live on the device:
// which slots are whose, and what the device was told of each group. Which
// beams live, and in which of the slots, only the device knows.
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
  int position = 0;          // that its last planned step feeds
  // PlanRow::source_length; `position` is the decoder's.
  int source_length = 0;
  std::vector<TokenId> eos_token_ids;
  // By slot, as the device has them; empty if not known.
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

  // The request's group with `num_slots` slots: the one it had, if as many.
  // Valid until it is dropped. If enough slots are free but not in a row, all
  // groups move together, which TakeMoves tells.
  // Errors: kResourceExhausted if too few slots are free.
  absl::StatusOr<CudaGroup*> Set(RequestId request, int num_slots);
  // Null if it is not known.
  CudaGroup* Find(RequestId request);
  void Drop(RequestId request);
  void Clear();

  // What the device must move, one after the other, before it is told of any
  // slot.
  std::vector<CudaGroupMove> TakeMoves() { return std::exchange(moves_, {}); }

  int num_groups() const { return static_cast<int>(groups_.size()); }

 private:
  // The first slot of the first free range of `count`; -1 if there is none.
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
