// AssignSlots: chooses the slot of each beam in the next step. A surviving beam
// keeps its slot: in rank order, the first child of each parent stays in its
// parent's slot, and every other child (a forked child) moves to the lowest
// slot whose beam has no child. Moves are thereby the fewest possible, and no
// move's source is another move's target, so all can be made at once.
//
//   parent slots by rank  2 2 0      (3 beams in 3 slots, beam 1 is pruned)
//   slots by rank         2 1 0      (rank 0 and 2 stay, rank 1 moves 2 -> 1)
//
// One pure function, compiled for host and device (docs/step.md).
#pragma once

#include "base/host_device.h"

namespace espalier {

//   parent_slots  [num_beams]  slot of each next beam's parent, by rank
//   slots         [num_beams]  out: slot of each next beam, by rank
//   has_child     [num_slots]  scratch, overwritten
// REQUIRES: num_beams <= num_slots, parent slots in [0, num_slots).
ESPALIER_HOST_DEVICE inline void AssignSlots(const int* parent_slots,
                                             int num_beams, int num_slots,
                                             int* slots, bool* has_child) {
  for (int slot = 0; slot < num_slots; ++slot) has_child[slot] = false;
  for (int rank = 0; rank < num_beams; ++rank) {
    const int parent = parent_slots[rank];
    slots[rank] = has_child[parent] ? -1 : parent;
    has_child[parent] = true;
  }
  int free_slot = 0;
  for (int rank = 0; rank < num_beams; ++rank) {
    if (slots[rank] >= 0) continue;
    while (has_child[free_slot]) ++free_slot;
    slots[rank] = free_slot++;
  }
}

}  // namespace espalier
