// Ids are types, so that two cannot be swapped. An id is a plain number with a
// name; it owns nothing.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace espalier {

template <typename Tag, typename Rep>
struct Id {
  Rep value{};

  friend auto operator<=>(const Id&, const Id&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Id& id) {
    return out << id.value;
  }
};

// A physical page of a PagePool, in [0, num_pages).
using PageId = Id<struct PageIdTag, int32_t>;
// Room for what one page holds, in host memory; in [0, num_host_slots).
using HostSlotId = Id<struct HostSlotIdTag, int32_t>;
// One token stream of an engine; never used twice.
using SequenceId = Id<struct SequenceIdTag, int64_t>;
// One request of an engine; never used twice.
using RequestId = Id<struct RequestIdTag, int64_t>;

// A vocabulary entry, in [0, vocab_size). Tokens fill tensors, so they stay a
// plain number.
using TokenId = int32_t;

}  // namespace espalier

template <typename Tag, typename Rep>
struct std::hash<espalier::Id<Tag, Rep>> {
  size_t operator()(const espalier::Id<Tag, Rep>& id) const {
    return std::hash<Rep>()(id.value);
  }
};
