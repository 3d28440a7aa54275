// PageCopy: one tail copy of copy-on-write, as data for the next step. The
// copies of one step may run in any order or all at once: no destination is a
// source, and no page is a destination twice.
//
// PageSave and PageLoad: a page swapped out to host memory and in again, whole.
// The saves of one step may run all at once, and so may its loads.
#pragma once

#include "base/ids.h"

namespace espalier {

struct PageCopy {
  PageId from;
  PageId to;
  int num_tokens = 0;  // the filled slots, from slot 0; at most page_size - 1

  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

struct PageSave {
  PageId page;
  HostSlotId slot;

  friend bool operator==(const PageSave&, const PageSave&) = default;
};

struct PageLoad {
  HostSlotId slot;
  PageId page;

  friend bool operator==(const PageLoad&, const PageLoad&) = default;
};

}  // namespace espalier
