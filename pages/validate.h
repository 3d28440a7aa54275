// The page invariants, as pure functions over a snapshot. Debug builds and
// tests call them after every step; they read everything, so the hot path does
// not.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/page_copy.h"
#include "pages/host_pool.h"
#include "pages/page_pool.h"
#include "pages/page_table.h"

namespace espalier {

// Checks the pool, given all tables on it, all detached tails, the pages that a
// cache holds, and the pages held for a copy:
//   - each page's count equals its number of holders: 0 for a free page, 1 for
//     a tail;
//   - free + held = total;
//   - the pages marked as cached are the cache's, each once; the ones without
//     another holder are the idle pages;
//   - a table holds exactly the pages that its length needs, each once.
// Errors: kInternal naming the page, table or tail and the two numbers.
absl::Status ValidatePages(const PagePool& pool,
                           std::span<const PageTable* const> tables,
                           std::span<const PageRef* const> tails = {},
                           std::span<const PageRef* const> cached = {},
                           std::span<const PageRef* const> copied = {});

// Checks that the tables and tails of one group hold at most `max_pages` pages
// together. A shared page counts once.
absl::Status ValidateNumHeld(std::span<const PageTable* const> tables,
                             std::span<const PageRef* const> tails,
                             int64_t max_pages);

// `filling`, below: pages that a cache holds but does not share until the
// result of the step that fills them arrives; ascending. The cache does not
// count as their holder.

// Checks the copies of one step: no destination is a source or a destination
// twice, sizes are in (0, page_size), every destination has one holder.
absl::Status ValidateCopies(const PagePool& pool,
                            std::span<const PageCopy> copies,
                            std::span<const PageId> filling = {});

// Checks the pool, given all holders of its slots: each slot's count equals its
// number of holders, and free + held = total.
// Errors: kInternal naming the slot and the two numbers.
absl::Status ValidateHostSlots(const HostPool& pool,
                               std::span<const HostSlot* const> held);

// Checks the saves and loads of one step, and the copies after them: each slot
// is saved to or loaded from at most once, and is held. Each page is loaded
// into at most once, is then not copied to, and is held.
absl::Status ValidateSwaps(const PagePool& pool, const HostPool& host,
                           std::span<const PageSave> saves,
                           std::span<const PageLoad> loads,
                           std::span<const PageCopy> copies);

// Checks that a page that a row writes into has no other holder.
//   pages  the row's pages in order; its tokens go to slots [first_position,
//          first_position + num_tokens) of the sequence
// Errors: kInternal naming the page and its holders, or if pages are missing.
absl::Status ValidateWrites(const PagePool& pool, std::span<const PageId> pages,
                            int first_position, int num_tokens,
                            std::span<const PageId> filling = {});

// Checks that each of the tails to be written belongs to one slot: no
// duplicates, and each has one holder.
absl::Status ValidateTails(const PagePool& pool, std::span<const PageId> tails);

}  // namespace espalier
