// The host model of beams on the device: a group as
// kernels/resident/assign_slots.h and exec_request/step_plan.h say it is kept,
// to test kernels/resident/cuda_resident.h by.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "constrain/constraint.h"
#include "kernels/resident/assign_slots.h"
#include "kernels/resident/cuda_resident.h"

namespace espalier::testing {

inline constexpr float kNoBeam = -std::numeric_limits<float>::infinity();

// One group as the host would keep it.
struct HostGroup {
  CudaResidentGroup on_device;
  CudaSelectGroup selection;
  std::vector<TokenId> eos;
  int position = 0;
  // By rank; a rank without a beam has token 0 and kNoBeam.
  std::vector<int> tokens;
  std::vector<float> cums;
  std::vector<int> slots;
  std::vector<uint32_t> samples;  // groups of samples only
  // With a constraint: it and its number on the device, the position from which
  // there is no room for tokens, and the states by rank; -1: no beam.
  std::shared_ptr<const Constraint> constraint;
  int constraint_idx = -1;
  int end_position = 0;
  std::vector<int32_t> states;
  int num_beams = 1;
  std::vector<std::pair<int, int>> moves;  // from slot, to slot
  // By slot.
  std::vector<std::vector<int>> tables;
  std::vector<int> tails;
};

struct Move {
  int from_page;
  int to_page;
  int num_tokens;
  auto operator<=>(const Move&) const = default;
};

// Pages below position / page_size and the filled part of the tail.
inline void MoveForks(HostGroup& group, int page_size,
                      std::vector<Move>* copies) {
  const int num_full = group.position / page_size;
  for (const auto& [from, to] : group.moves) {
    std::copy_n(group.tables[from].begin(), num_full, group.tables[to].begin());
    const int num_filled = group.position % page_size;
    if (num_filled == 0) continue;
    copies->push_back(
        {group.tables[from][num_full], group.tails[to], num_filled});
  }
  for (size_t slot = 0; slot < group.tails.size(); ++slot) {
    group.tables[slot][num_full] = group.tails[slot];
  }
}

inline void Advance(HostGroup& group,
                    const std::vector<Candidate>& candidates) {
  const int num_slots = group.on_device.num_slots;
  std::vector<int> parents;
  group.tokens.assign(num_slots, 0);
  group.cums.assign(num_slots, kNoBeam);
  const std::vector<uint32_t> drew = group.samples;
  std::fill(group.samples.begin(), group.samples.end(), kNoSample);
  const std::vector<int32_t> states = group.states;
  std::fill(group.states.begin(), group.states.end(), -1);
  const int room = group.end_position - group.position - 1;
  const bool may_lack = candidates.size() >= group.on_device.max_candidates;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (candidate.token < 0 || parents.size() == num_slots) continue;
    if (group.constraint == nullptr) {
      if (std::ranges::binary_search(group.eos, candidate.token)) continue;
    } else {
      const int32_t state =
          group.constraint->Advance(states[candidate.beam], candidate.token);
      if (group.constraint->ends(state, room)) continue;
      group.states[parents.size()] = state;
    }
    if (!drew.empty()) group.samples[parents.size()] = drew[i];
    group.tokens[parents.size()] = candidate.token;
    group.cums[parents.size()] = candidate.cum_log_prob;
    parents.push_back(group.slots[candidate.beam]);
  }
  if (may_lack && parents.size() < num_slots) {
    parents.clear();
    group.tokens.assign(num_slots, 0);
    group.cums.assign(num_slots, kNoBeam);
    std::ranges::fill(group.states, -1);
  }
  group.num_beams = static_cast<int>(parents.size());
  std::vector<int> slots(num_slots);
  const auto has_child = std::make_unique<bool[]>(num_slots);
  AssignSlots(parents.data(), group.num_beams, num_slots, slots.data(),
              has_child.get());
  group.moves.clear();
  std::vector<bool> taken(num_slots);
  for (int rank = 0; rank < group.num_beams; ++rank) {
    taken[slots[rank]] = true;
    if (slots[rank] != parents[rank]) {
      group.moves.emplace_back(parents[rank], slots[rank]);
    }
  }
  int rank = group.num_beams;
  for (int slot = 0; slot < num_slots; ++slot) {
    if (!taken[slot]) slots[rank++] = slot;
  }
  group.slots = slots;
  ++group.position;
}

}  // namespace espalier::testing
