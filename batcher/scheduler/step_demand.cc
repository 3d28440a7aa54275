#include "batcher/scheduler/step_demand.h"

namespace espalier {

void StepDemand::AddAny(const SequenceGroup& group) {
  may_any_draft |= group.may_draft();
  is_any_scoring |= group.only_scores();
  is_any_preempted |= group.is_preempted();
  if (group.prefilling()) {
    is_any_prefilling = true;
    is_any_schedulable |= !group.is_waiting_for_prefix();
  }
  if (group.prefilling() || !group.can_plan()) {
    ++num_idle;
    return;
  }
  is_any_schedulable |= group.outstanding() && !group.has_to_draft();
  may_any_draft_ahead |= group.has_to_draft();
  num_decode_rows += group.num_live_beams();
  num_pages_ahead += group.max_decode_rows() - group.num_live_beams();
}

}  // namespace espalier
