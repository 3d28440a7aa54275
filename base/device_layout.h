// DeviceLayout: where the arrays in one piece of device memory are. Every
// offset and size of selection's and sampling's scratch comes from one, so that
// the host can tell, without a device, what a kernel may index:
//
//   two ranges of a layout never overlap, and what a step indexes of a range
//   lies inside it, whatever mixture of requests the limits allow.
//
// LayoutAudit checks that law for one step: it is given every interval that
// kernels which run together index.
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
  // Where it is in memory that begins at `base`; null if it is empty.
  template <typename T>
  T* At(void* base) const {
    if (base == nullptr || count == 0) return nullptr;
    return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
  }
};

class DeviceLayout {
 public:
  // Where any load of the device may begin.
  static constexpr size_t kAlignment = 256;

  explicit DeviceLayout(size_t alignment = kAlignment)
      : alignment_(alignment) {}

  // The next range, after all that are there. `name` outlives the layout.
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

// Intervals of one piece of memory that kernels index while what is in all of
// them is needed.
class LayoutAudit {
 public:
  // Items [begin, begin + count) of `range`, which no other shares.
  void Use(const DeviceRange& range, int64_t begin, int64_t count);

  // What is outside of its range, or overlaps; "" if nothing is.
  std::string fault() const;

 private:
  struct Interval {
    size_t begin = 0;  // bytes
    size_t end = 0;
    std::string_view name;
  };
  std::vector<Interval> intervals_;
  std::string outside_;  // the first
};

}  // namespace espalier
