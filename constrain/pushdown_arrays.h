// PushdownArrays: owns the arrays of PushdownTables (base/pushdown_tables.h),
// by which a device follows the texts of a PushdownAutomaton: one state and one
// stack a position. Most languages of JSON have them. They need an automaton
// that tells by the next byte what to do, as an LL(1) grammar does: of each
// state, a byte follows one sequence of calls at most, and no byte that may
// follow where the state's text ends.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/constraint_tables.h"
#include "base/pushdown_tables.h"
#include "constrain/pushdown_automaton.h"
#include "constrain/pushdown_costs.h"

namespace espalier {

class PushdownArrays {
 public:
  // Returns null if the next byte does not tell what to do, if the stack may
  // have more than PushdownPlace::kMaxDepth frames, or if the arrays would take
  // more than kMaxBytes or finding them more than kMaxSteps.
  //   costs  in tokens
  static std::unique_ptr<const PushdownArrays> Make(
      const PushdownAutomaton& automaton, const PushdownCosts& costs);

  static constexpr int64_t kMaxBytes = int64_t{64} << 20;
  static constexpr int64_t kMaxSteps = int64_t{1} << 23;

  // Sets the arrays of texts and stacks, but no value of the vocabulary. Valid
  // as long as this.
  void SetTables(ConstraintTables* tables) const;
  // Sets the frames of a stack, the oldest return first, [stack.size()].
  void FindFrames(std::span<const PushdownAutomaton::State> stack,
                  PushdownFrame* frames) const;
  int64_t num_bytes() const;

 private:
  PushdownArrays() = default;
  class Maker;

  int num_classes_ = 0;
  int num_levels_ = 0;
  int max_depth_ = 0;
  std::array<uint8_t, 256> classes_ = {};
  std::vector<uint8_t> accepts_;
  std::vector<int32_t> next_;
  std::vector<int32_t> more_;
  std::vector<int32_t> to_end_;
  std::vector<PushdownTables::Move> moves_;
  std::vector<int32_t> pushed_;
  std::vector<PushdownTables::Counter> counters_;
  std::vector<int32_t> limits_;
};

}  // namespace espalier
