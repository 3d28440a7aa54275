#include "base/device_layout.h"

#include <algorithm>

#include "base/status.h"

namespace espalier {

void LayoutAudit::Use(const DeviceRange& range, int64_t begin, int64_t count) {
  if (count == 0) return;
  const int64_t end = begin + count;
  const bool inside =
      begin >= 0 && count > 0 && end <= static_cast<int64_t>(range.count);
  if (!inside && outside_.empty()) {
    outside_ = Concat("items [", begin, ", ", end, ") of ", range.name,
                      ", which has ", range.count);
  }
  if (!inside) return;
  intervals_.push_back({range.offset + begin * range.item_bytes,
                        range.offset + end * range.item_bytes, range.name});
}

std::string LayoutAudit::fault() const {
  if (!outside_.empty()) return outside_;
  std::vector<Interval> sorted = intervals_;
  std::ranges::sort(sorted, {}, &Interval::begin);
  const auto overlap = std::ranges::adjacent_find(
      sorted,
      [](const Interval& a, const Interval& b) { return b.begin < a.end; });
  if (overlap == sorted.end()) return "";
  const Interval& next = *std::next(overlap);
  return Concat(next.name, " at bytes [", next.begin, ", ", next.end,
                ") overlaps ", overlap->name, " at [", overlap->begin, ", ",
                overlap->end, ")");
}

}  // namespace espalier
