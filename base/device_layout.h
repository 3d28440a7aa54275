// DeviceLayout: offsets of arrays in one allocation of device memory. All
// offsets and sizes of the scratch of selection and sampling come from one, so
// that host tests can check this invariant without a device:
//
//   two ranges of a layout never overlap, and every index of a step into a
//   range is inside it, for any mixture of requests within the limits.
//
// LayoutAudit checks the invariant for one step, from the intervals that all
// kernels that run together index.
//
//   DeviceLayout layout;
//   const DeviceRange sums = layout.Add("sums", num_rows, sizeof(float));
//   float* p = sums.At<float>(base);
//
//   LayoutAudit audit;
//   audit.Use(sums, group.first_row, group.num_rows);
//   DCHECK(audit.fault().empty()) << audit.fault();
//
// Plain C++, values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// `count` items from `offset` on, in bytes from the start of the memory.
struct DeviceRange {
  std::string_view name = "";
  size_t offset = 0;
  size_t count = 0;
  size_t item_bytes = 1;

  size_t end() const { return offset + count * item_bytes; }
  // Returns its address in memory that begins at `base`; null if it is empty.
  template <typename T>
  T* At(void* base) const {
    if (base == nullptr || count == 0) return nullptr;
    return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
  }
};

class DeviceLayout {
 public:
  // Satisfies the alignment of every load on the device.
  static constexpr size_t kAlignment = 256;

  explicit DeviceLayout(size_t alignment = kAlignment)
      : alignment_(alignment) {}

  // Appends a range.
  // REQUIRES: `name` outlives the layout.
  DeviceRange Add(std::string_view name, size_t count, size_t item_bytes) {
    const DeviceRange range = {name, bytes_, count, item_bytes};
    bytes_ = (range.end() + alignment_ - 1) / alignment_ * alignment_;
    ranges_.push_back(range);
    return range;
  }

  size_t bytes() const { return bytes_; }
  const std::vector<DeviceRange>& ranges() const { return ranges_; }

 private:
  const size_t alignment_;
  size_t bytes_ = 0;
  std::vector<DeviceRange> ranges_;
};

// The intervals of one allocation that kernels use at the same time.
class LayoutAudit {
 public:
  // Adds exclusive use of items [begin, begin + count) of `range`.
  void Use(const DeviceRange& range, int64_t begin, int64_t count);

  // Returns an interval that exceeds its range or overlaps another; "" if there
  // is none.
  std::string fault() const;

 private:
  struct Interval {
    size_t begin = 0;  // bytes
    size_t end = 0;
    std::string_view name;
  };
  std::vector<Interval> intervals_;
  std::string outside_;  // first interval that exceeds its range
};

}  // namespace espalier
