#include "beam/pages/saved_pages.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace espalier {
namespace {

// Returns the number of times that `tables` hold each page.
std::unordered_map<PageId, int> CountPages(
    std::span<const PageTable* const> tables) {
  std::unordered_map<PageId, int> counts;
  for (const PageTable* table : tables) {
    for (const PageRef& page : table->pages()) ++counts[page.id()];
  }
  return counts;
}

// True if the page is lost when its `num_own` holders release it: the cache may
// evict it.
bool IsLost(const PageRef& page, int num_own) {
  const PagePool& pool = *page.pool();
  return pool.ref_count(page.id()) ==
         num_own + (pool.is_cached(page.id()) ? 1 : 0);
}

}  // namespace

bool SavedPages::Save(std::span<const PageTable* const> tables, int num_ranks,
                      const PageSaving& saving, std::vector<PageSave>* saves) {
  if (saving.pool == nullptr) return false;
  const size_t num_saves = saves->size();
  const std::unordered_map<PageId, int> counts = CountPages(tables);
  std::unordered_map<PageId, HostSlot> slots;
  size_t num_places = 0;
  for (const PageTable* table : tables) {
    num_places = std::max(num_places, table->pages().size());
  }
  tables_.resize(num_ranks);
  for (size_t place = 0; place < num_places; ++place) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const PageTable& table =
          *tables[std::min<size_t>(rank, tables.size() - 1)];
      if (place >= table.pages().size()) continue;
      const PageRef& page = table.pages()[place];
      const int page_size = page.pool()->page_size();
      const int num_tokens = std::min(
          page_size, table.num_tokens() - static_cast<int>(place) * page_size);
      const SavedPage* const before = Find(rank, static_cast<int>(place));
      if (before != nullptr && before->num_tokens >= num_tokens) continue;
      if (num_tokens < saving.min_tokens ||
          !IsLost(page, counts.find(page.id())->second)) {
        continue;
      }
      HostSlot& slot = slots[page.id()];
      if (!slot) {
        slot = saving.pool->Take();
        if (!slot) return saves->size() > num_saves;
        saves->push_back({page.id(), slot.id()});
      }
      std::vector<SavedPage>& saved = tables_[rank];
      if (saved.size() <= place) saved.resize(place + 1);
      saved[place] = {slot, num_tokens};
    }
  }
  return saves->size() > num_saves;
}

void SavedPages::Reorder(std::span<const int> parent_ranks) {
  if (tables_.empty()) return;
  std::vector<std::vector<SavedPage>> next;
  for (const int parent : parent_ranks) next.push_back(tables_[parent]);
  tables_ = std::move(next);
}

const SavedPage* SavedPages::Find(int rank, int page_idx) const {
  if (rank >= std::ssize(tables_)) return nullptr;
  const std::vector<SavedPage>& table = tables_[rank];
  if (page_idx >= std::ssize(table) || !table[page_idx].slot) return nullptr;
  return &table[page_idx];
}

int SavedPages::NextAfter(int rank, int page_idx) const {
  if (rank >= std::ssize(tables_)) return -1;
  for (int i = page_idx + 1; i < std::ssize(tables_[rank]); ++i) {
    if (tables_[rank][i].slot) return i;
  }
  return -1;
}

std::vector<HostSlotId> SavedPages::SlotIds() const {
  std::vector<HostSlotId> ids;
  for (const HostSlot* slot : Slots()) ids.push_back(slot->id());
  std::ranges::sort(ids);
  return ids;
}

std::vector<const HostSlot*> SavedPages::Slots() const {
  std::vector<const HostSlot*> slots;
  for (const std::vector<SavedPage>& table : tables_) {
    for (const SavedPage& page : table) {
      if (page.slot) slots.push_back(&page.slot);
    }
  }
  return slots;
}

}  // namespace espalier
