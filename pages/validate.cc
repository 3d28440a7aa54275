#include "pages/validate.h"

#include <algorithm>
#include <vector>

#include "base/page_count.h"
#include "base/status.h"

namespace espalier {
namespace {

// Checks one table alone and counts its pages into `*num_holders`.
absl::Status ValidateTable(const PagePool& pool, size_t table_idx,
                           const PageTable& table,
                           std::vector<int>* num_holders) {
  const int64_t num_needed = NumPages(table.num_tokens(), pool.page_size());
  if (table.pages().size() != num_needed) {
    return Internal("table ", table_idx, " of ", table.num_tokens(),
                    " tokens needs ", num_needed, " pages and has ",
                    table.pages().size());
  }
  std::vector<PageId> ids;
  for (const PageRef& page : table.pages()) {
    if (page.pool() != &pool) {
      return Internal("table ", table_idx, " has a page of another pool");
    }
    ids.push_back(page.id());
    ++(*num_holders)[page.id().value];
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return absl::OkStatus();
  return Internal("table ", table_idx, " has page ", *twice, " twice");
}

absl::Status CountTail(const PagePool& pool, size_t tail_idx,
                       const PageRef& tail, std::vector<int>* num_holders) {
  if (tail.pool() != &pool) {
    return Internal("tail ", tail_idx, " is no page of the pool");
  }
  if (tail.shared()) {
    return Internal("tail ", tail_idx, ", page ", tail.id(), ", has ",
                    pool.ref_count(tail.id()), " holders");
  }
  ++(*num_holders)[tail.id().value];
  return absl::OkStatus();
}

absl::Status ValidateCounts(const PagePool& pool,
                            const std::vector<int>& num_holders) {
  int num_counted = 0;
  for (int id = 0; id < pool.num_pages(); ++id) {
    const int ref_count = pool.ref_count(PageId{id});
    if (ref_count != num_holders[id]) {
      return Internal("page ", id, " counts ", ref_count, " holders and has ",
                      num_holders[id]);
    }
    num_counted += ref_count > 0 ? 1 : 0;
  }
  if (num_counted != pool.num_held()) {
    return Internal(num_counted, " pages have holders, ", pool.num_held(),
                    " are not free");
  }
  return absl::OkStatus();
}

// Counts the pages of the cache, and those that nothing else holds.
absl::Status ValidateCache(const PagePool& pool,
                           std::span<const PageRef* const> cached,
                           std::vector<int>* num_holders) {
  std::vector<bool> is_cached(pool.num_pages());
  int num_idle = 0;
  for (const PageRef* page : cached) {
    if (page->pool() != &pool || is_cached[page->id().value]) {
      return Internal("page ", page->id(), " is cached twice, or not of here");
    }
    is_cached[page->id().value] = true;
    ++(*num_holders)[page->id().value];
    num_idle += page->shared() ? 0 : 1;
  }
  for (int id = 0; id < pool.num_pages(); ++id) {
    if (pool.is_cached(PageId{id}) == is_cached[id]) continue;
    return Internal("page ", id, is_cached[id] ? " is not" : " is",
                    " marked as cached");
  }
  if (num_idle == pool.num_idle()) return absl::OkStatus();
  return Internal(num_idle, " pages are idle, ", pool.num_idle(),
                  " are counted");
}

bool IsPage(const PagePool& pool, PageId page) {
  return page.value >= 0 && page.value < pool.num_pages();
}

int NumHolders(const PagePool& pool, PageId page,
               std::span<const PageId> filling) {
  const bool is_filling =
      std::binary_search(filling.begin(), filling.end(), page);
  return pool.ref_count(page) - (is_filling ? 1 : 0);
}

absl::Status ValidateCopy(const PagePool& pool, const PageCopy& copy,
                          std::span<const PageId> filling) {
  if (!IsPage(pool, copy.from) || !IsPage(pool, copy.to)) {
    return Internal("copy ", copy.from, " -> ", copy.to, " in a pool of ",
                    pool.num_pages(), " pages");
  }
  if (copy.num_tokens < 1 || copy.num_tokens >= pool.page_size()) {
    return Internal("copy ", copy.from, " -> ", copy.to, " of ",
                    copy.num_tokens, " tokens in pages of ", pool.page_size());
  }
  const int num_holders = NumHolders(pool, copy.to, filling);
  if (num_holders != 1) {
    return Internal("page ", copy.to, " is copied to and has ", num_holders,
                    " holders");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidatePages(const PagePool& pool,
                           std::span<const PageTable* const> tables,
                           std::span<const PageRef* const> tails,
                           std::span<const PageRef* const> cached,
                           std::span<const PageRef* const> copied) {
  std::vector<int> num_holders(pool.num_pages());
  for (const PageRef* page : copied) ++num_holders[page->id().value];
  RETURN_IF_ERROR(ValidateCache(pool, cached, &num_holders));
  for (size_t i = 0; i < tables.size(); ++i) {
    RETURN_IF_ERROR(ValidateTable(pool, i, *tables[i], &num_holders));
  }
  for (size_t i = 0; i < tails.size(); ++i) {
    RETURN_IF_ERROR(CountTail(pool, i, *tails[i], &num_holders));
  }
  return ValidateCounts(pool, num_holders);
}

absl::Status ValidateNumHeld(std::span<const PageTable* const> tables,
                             std::span<const PageRef* const> tails,
                             int64_t max_pages) {
  std::vector<PageId> held;
  for (const PageTable* table : tables) {
    for (const PageRef& page : table->pages()) held.push_back(page.id());
  }
  for (const PageRef* tail : tails) held.push_back(tail->id());
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  if (std::ssize(held) <= max_pages) return absl::OkStatus();
  return Internal("a group holds ", held.size(), " pages, at most ", max_pages,
                  " are its share");
}

absl::Status ValidateCopies(const PagePool& pool,
                            std::span<const PageCopy> copies,
                            std::span<const PageId> filling) {
  std::vector<bool> is_source(pool.num_pages());
  std::vector<bool> is_destination(pool.num_pages());
  for (const PageCopy& copy : copies) {
    RETURN_IF_ERROR(ValidateCopy(pool, copy, filling));
    if (is_destination[copy.to.value]) {
      return Internal("page ", copy.to, " is copied to twice");
    }
    is_source[copy.from.value] = true;
    is_destination[copy.to.value] = true;
  }
  for (int id = 0; id < pool.num_pages(); ++id) {
    if (is_source[id] && is_destination[id]) {
      return Internal("page ", id, " is copied from and to");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateHostSlots(const HostPool& pool,
                               std::span<const HostSlot* const> held) {
  std::vector<int> num_holders(pool.num_slots());
  for (const HostSlot* slot : held) {
    if (slot->pool() != &pool) return Internal("a slot is of another pool");
    ++num_holders[slot->id().value];
  }
  int num_held = 0;
  for (int id = 0; id < pool.num_slots(); ++id) {
    const int ref_count = pool.ref_count(HostSlotId{id});
    if (ref_count != num_holders[id]) {
      return Internal("host slot ", id, " counts ", ref_count,
                      " holders and has ", num_holders[id]);
    }
    num_held += ref_count > 0 ? 1 : 0;
  }
  if (num_held == pool.num_held()) return absl::OkStatus();
  return Internal(num_held, " host slots have holders, ", pool.num_held(),
                  " are not free");
}

absl::Status ValidateSwaps(const PagePool& pool, const HostPool& host,
                           std::span<const PageSave> saves,
                           std::span<const PageLoad> loads,
                           std::span<const PageCopy> copies) {
  std::vector<bool> is_used(host.num_slots());
  const auto use = [&](HostSlotId slot) {
    if (slot.value < 0 || slot.value >= host.num_slots()) {
      return Internal("host slot ", slot, " of ", host.num_slots());
    }
    if (host.ref_count(slot) == 0) {
      return Internal("host slot ", slot, " is swapped with and free");
    }
    if (is_used[slot.value]) {
      return Internal("host slot ", slot, " is swapped with twice");
    }
    is_used[slot.value] = true;
    return absl::OkStatus();
  };
  for (const PageSave& save : saves) {
    if (!IsPage(pool, save.page)) return Internal("page ", save.page, " saved");
    RETURN_IF_ERROR(use(save.slot));
  }
  std::vector<bool> is_written(pool.num_pages());
  for (const PageCopy& copy : copies) is_written[copy.to.value] = true;
  for (const PageLoad& load : loads) {
    RETURN_IF_ERROR(use(load.slot));
    if (!IsPage(pool, load.page) || pool.ref_count(load.page) == 0) {
      return Internal("page ", load.page, " is loaded into and free");
    }
    if (is_written[load.page.value]) {
      return Internal("page ", load.page, " is loaded into and written again");
    }
    is_written[load.page.value] = true;
  }
  return absl::OkStatus();
}

absl::Status ValidateWrites(const PagePool& pool, std::span<const PageId> pages,
                            int first_position, int num_tokens,
                            std::span<const PageId> filling) {
  const int end = first_position + num_tokens;
  if (NumPages(end, pool.page_size()) > static_cast<int64_t>(pages.size())) {
    return Internal("a row writes up to position ", end, " of ", pages.size(),
                    " pages of ", pool.page_size(), " tokens");
  }
  for (int i = first_position / pool.page_size();
       i < NumPages(end, pool.page_size()); ++i) {
    const int num_holders = NumHolders(pool, pages[i], filling);
    if (num_holders != 1) {
      return Internal("a row writes into page ", pages[i], ", which has ",
                      num_holders, " holders");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateTails(const PagePool& pool,
                           std::span<const PageId> tails) {
  std::vector<bool> seen(pool.num_pages());
  for (const PageId page : tails) {
    if (!IsPage(pool, page)) {
      return Internal("tail ", page, " in a pool of ", pool.num_pages(),
                      " pages");
    }
    if (pool.ref_count(page) != 1) {
      return Internal("tail ", page, " has ", pool.ref_count(page), " holders");
    }
    if (seen[page.value]) return Internal("page ", page, " is a tail twice");
    seen[page.value] = true;
  }
  return absl::OkStatus();
}

}  // namespace espalier
