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

// Checks, given all the tables that live on `pool`, all the tails that are
// taken out of tables, the pages that a cache holds, and those that are held
// for a copy:
//   - each page's count equals its holders, and a free page has none; a tail
//     has one;
//   - free + held = total;
//   - the pages marked as cached are the cache's, each once, and those that
//     have no other holder are the idle ones;
//   - a table holds exactly the pages its length needs, none of them twice.
// Errors: kInternal naming the page, table or tail and the two figures.
absl::Status ValidatePages(const PagePool& pool,
                           std::span<const PageTable* const> tables,
                           std::span<const PageRef* const> tails = {},
                           std::span<const PageRef* const> cached = {},
                           std::span<const PageRef* const> copied = {});

// Checks that the tables and tails of one group hold at most `max_pages`
// together. A page that several hold counts once.
absl::Status ValidateNumHeld(std::span<const PageTable* const> tables,
                             std::span<const PageRef* const> tails,
                             int64_t max_pages);

// `filling`, below: pages that a cache holds, and does not share before the
// step that fills them is answered; ascending. It is no holder of these.

// Checks the copies of one step: no destination is a source or a destination
// twice, sizes are in (0, page_size), every destination has one holder.
absl::Status ValidateCopies(const PagePool& pool,
                            std::span<const PageCopy> copies,
                            std::span<const PageId> filling = {});

// Checks, given all that holds slots of `pool`: each slot's count equals its
// holders, and free + held = total. So what is held is what groups have there.
// Errors: kInternal naming the slot and the two figures.
absl::Status ValidateHostSlots(const HostPool& pool,
                               std::span<const HostSlot* const> held);

// Checks what one step saves and loads, and copies after that: no slot is saved
// to or loaded from twice, nor both; every one is held. No page is loaded into
// twice, nor loaded and then copied to; every page that is loaded into is held.
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

// Checks that tails to be written belong to one slot each: none is given
// twice, every one has one holder.
absl::Status ValidateTails(const PagePool& pool, std::span<const PageId> tails);

}  // namespace espalier
