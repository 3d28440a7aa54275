// StepDemand: the sum of what groups need in the next step. It decides which
// kinds of work the step has, so that a step in which all groups decode needs
// no other walk over them.
//
// A value: the order of groups does not matter, and a done group must not be
// added. It is stale as soon as one of its groups changes.
#pragma once

#include <cstdint>

#include "beam/sequence_group.h"

namespace espalier {

struct StepDemand {
  // is_any_schedulable: a group can run ahead of its result or feed its
  // prompt. may_any_draft_ahead: a group can run ahead if its drafts fit. If
  // no group can be scheduled now, groups whose result has arrived wait for
  // the rest: one shared step costs less than two.
  bool is_any_schedulable = false;
  bool may_any_draft_ahead = false;
  bool is_any_prefilling = false;
  bool is_any_scoring = false;  // continuations, or a prompt alone
  bool may_any_draft = false;
  bool is_any_preempted = false;
  int num_groups = 0;
  int num_idle = 0;  // groups that cannot decode now
  // Beams that feed; a group that runs ahead may have fewer.
  int num_decode_rows = 0;
  // Upper bound of pages beyond one for each of these rows, for groups that
  // run ahead.
  int64_t num_pages_ahead = 0;

  // Upper bound of pages for decoding groups.
  int64_t max_decode_pages() const { return num_decode_rows + num_pages_ahead; }

  void Add(const SequenceGroup& group) {
    ++num_groups;
    // The common case: it decodes, and no result is outstanding.
    if (group.prefilling() || group.outstanding() || group.speculates() ||
        group.only_scores() || group.is_preempted() || group.awaits_lists()) {
      return AddAny(group);
    }
    num_decode_rows += group.num_live_beams();
  }

  friend bool operator==(const StepDemand&, const StepDemand&) = default;

 private:
  void AddAny(const SequenceGroup& group);
};

}  // namespace espalier
