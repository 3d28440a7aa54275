// ItemCatalogues: the catalogues of items that requests of a model name, each
// with its version. A version that replaces another one is what later requests
// get; those that have the other keep it.
//
//   catalogues.Put("songs", std::make_shared<const ItemCatalogue>(lists));
//   catalogues.Find("songs");  // null if there is none
//
// A catalogue of 10^7 items takes a while to destroy, so one that was replaced
// is kept as long as a request has it, and destroyed by the thread of a later
// call of these functions: not by the end of the request, on the strand of its
// engine.
//
// Thread safety: any thread may call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "constrain/item_catalogue.h"
#include "constrain/item_trie_builder.h"

namespace espalier {

class ItemCatalogues {
 public:
  struct Version {
    int64_t number = 0;  // 1 for the first of all, and so on
    std::shared_ptr<const ItemCatalogue> items = nullptr;
  };

  explicit ItemCatalogues(ItemTrieBuilder trie_builder = BuildItemTrie)
      : trie_builder_(std::move(trie_builder)) {}

  // Builds tries of catalogues where it is fastest. Any thread may call it.
  const ItemTrieBuilder& trie_builder() const { return trie_builder_; }

  // Adds a catalogue, or replaces the one of this name. Returns its version.
  Version Put(std::string_view name,
              std::shared_ptr<const ItemCatalogue> items);
  // Returns false if there is none of this name.
  bool Remove(std::string_view name);
  // Returns the latest version; null if there is none of this name.
  std::shared_ptr<const ItemCatalogue> Find(std::string_view name) const;
  // Returns all of them, by name.
  std::map<std::string, Version> All() const;
  std::vector<std::string> Names() const;

 private:
  using Dropped = std::vector<std::shared_ptr<const ItemCatalogue>>;

  // Returns the dropped ones that no request has any more. The caller destroys
  // them without the lock.
  Dropped TakeUnused() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ItemTrieBuilder trie_builder_;
  mutable std::mutex mutex_;
  std::map<std::string, Version, std::less<>> named_ ABSL_GUARDED_BY(mutex_);
  mutable Dropped dropped_ ABSL_GUARDED_BY(mutex_);
  int64_t num_versions_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
