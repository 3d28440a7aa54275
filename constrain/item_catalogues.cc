#include "constrain/item_catalogues.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace espalier {

ItemCatalogues::Version ItemCatalogues::Put(
    std::string_view name, std::shared_ptr<const ItemCatalogue> items) {
  Dropped unused;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  Version& version = named_[std::string(name)];
  if (version.items != nullptr) dropped_.push_back(std::move(version.items));
  version = {++num_versions_, std::move(items)};
  unused = TakeUnused();
  return version;
}

bool ItemCatalogues::Remove(std::string_view name) {
  Dropped unused;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = named_.find(name);
  if (found == named_.end()) return false;
  dropped_.push_back(std::move(found->second.items));
  named_.erase(found);
  unused = TakeUnused();
  return true;
}

std::shared_ptr<const ItemCatalogue> ItemCatalogues::Find(
    std::string_view name) const {
  Dropped unused;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  unused = TakeUnused();
  const auto found = named_.find(name);
  return found == named_.end() ? nullptr : found->second.items;
}

std::map<std::string, ItemCatalogues::Version> ItemCatalogues::All() const {
  const std::lock_guard lock(mutex_);
  return {named_.begin(), named_.end()};
}

std::vector<std::string> ItemCatalogues::Names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, version] : named_) names.push_back(name);
  return names;
}

ItemCatalogues::Dropped ItemCatalogues::TakeUnused() const {
  const auto unused =
      std::partition(dropped_.begin(), dropped_.end(),
                     [](const auto& items) { return items.use_count() > 1; });
  Dropped taken(std::make_move_iterator(unused),
                std::make_move_iterator(dropped_.end()));
  dropped_.erase(unused, dropped_.end());
  return taken;
}

}  // namespace espalier
