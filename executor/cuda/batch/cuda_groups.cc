#include "executor/cuda/batch/cuda_groups.h"

#include "base/status.h"

namespace espalier {

absl::StatusOr<CudaGroup*> CudaGroups::Set(RequestId request, int num_slots) {
  CudaGroup* const known = Find(request);
  if (known != nullptr && known->num_slots == num_slots) return known;
  Drop(request);
  if (num_slots > num_slots_ - num_used_) {
    return ResourceExhausted("a request needs ", num_slots, " slots of beams ",
                             "on the device, ", num_slots_ - num_used_, " of ",
                             num_slots_, " are free");
  }
  if (FindRange(num_slots) < 0) Compact();
  CudaGroup& group = groups_[request];
  group.first_slot = FindRange(num_slots);
  group.num_slots = num_slots;
  ranges_[group.first_slot] = &group;
  num_used_ += num_slots;
  return &group;
}

CudaGroup* CudaGroups::Find(RequestId request) {
  const auto found = groups_.find(request);
  return found == groups_.end() ? nullptr : &found->second;
}

void CudaGroups::Drop(RequestId request) {
  const auto found = groups_.find(request);
  if (found == groups_.end()) return;
  num_used_ -= found->second.num_slots;
  ranges_.erase(found->second.first_slot);
  groups_.erase(found);
}

void CudaGroups::Clear() {
  groups_.clear();
  ranges_.clear();
  moves_.clear();
  num_used_ = 0;
}

int CudaGroups::FindRange(int count) const {
  int first = 0;
  for (const auto& [used, group] : ranges_) {
    if (used - first >= count) return first;
    first = used + group->num_slots;
  }
  return num_slots_ - first >= count ? first : -1;
}

void CudaGroups::Compact() {
  std::map<int, CudaGroup*> ranges;
  int first = 0;
  for (const auto& [used, group] : ranges_) {
    if (used != first) moves_.push_back({used, first, group->num_slots});
    group->first_slot = first;
    ranges[first] = group;
    first += group->num_slots;
  }
  ranges_ = std::move(ranges);
}

}  // namespace espalier
