#include "batcher/scheduler/fair_turns.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace espalier {

const Turn& FairTurns::NextRequest() const {
  return turns_.begin()->second->waiting.begin()->oldest;
}

void FairTurns::Push(const Turn& turn, int64_t priority,
                     std::string_view tenant_name, int64_t cost) {
  CHECK_GE(cost, 1) << "tokens";
  Level& level = levels_.try_emplace(priority).first->second;
  level.priority = priority;
  Tenant* tenant = nullptr;
  try {
    auto found = level.tenants.find(tenant_name);
    const bool is_new = found == level.tenants.end();
    if (is_new) {
      found = level.tenants.emplace(std::string(tenant_name), Tenant()).first;
      found->second.name = found->first;
      found->second.start = level.virtual_time;
    }
    tenant = &found->second;
    const auto [at, is_free] =
        requests_.emplace(turn, Request{&level, tenant, cost});
    CHECK(is_free) << "the turn of request " << turn.id << " is used";
    turns_.emplace(turn, &level);
    level.turns.insert(turn);
    const bool was_waiting = !tenant->requests.empty();
    tenant->requests.insert(turn);
    if (is_new) {
      tenant->place = level.waiting.insert({tenant->start, turn, tenant}).first;
    } else {
      Move(tenant, was_waiting ? &level.waiting : &level.idle, &level.waiting);
    }
  } catch (const std::bad_alloc&) {
    requests_.erase(turn);
    turns_.erase(turn);
    level.turns.erase(turn);
    if (tenant != nullptr) {
      tenant->requests.erase(turn);
      const auto is_of = [&](const Place& p) { return p.tenant == tenant; };
      if (std::ranges::none_of(level.waiting, is_of) &&
          std::ranges::none_of(level.idle, is_of)) {
        level.tenants.erase(level.tenants.find(tenant_name));
      }
    }
    Forget(&level);
    throw;
  }
}

void FairTurns::Take() {
  const Turn turn = next_turn();
  Level* const level = turns_.begin()->second;
  Tenant* const tenant = level->waiting.begin()->tenant;
  const Turn request = *tenant->requests.begin();
  const int64_t cost = requests_.find(request)->second.cost;
  const int64_t share = std::max<int64_t>(1, cost / std::ssize(level->waiting));
  level->virtual_time = std::max(tenant->start, level->virtual_time + share);
  tenant->start += cost;
  RemoveRequest(request, level, tenant);
  RemoveTurn(turn, level);
  Forget(level);
}

void FairTurns::Remove(const Turn& turn) {
  const auto found = requests_.find(turn);
  CHECK(found != requests_.end()) << "request " << turn.id << " does not wait";
  Level* const level = found->second.level;
  RemoveRequest(turn, level, found->second.tenant);
  auto at = level->turns.lower_bound(turn);
  if (at == level->turns.end()) --at;
  RemoveTurn(Turn(*at), level);
  Forget(level);
}

void FairTurns::Move(Tenant* tenant, Places* from, Places* to) {
  auto node = from->extract(tenant->place);
  node.value() = {
      .start = tenant->start,
      .oldest = tenant->requests.empty() ? Turn() : *tenant->requests.begin(),
      .tenant = tenant};
  tenant->place = to->insert(std::move(node)).position;
}

void FairTurns::RemoveRequest(const Turn& turn, Level* level, Tenant* tenant) {
  requests_.erase(turn);
  tenant->requests.erase(turn);
  Move(tenant, &level->waiting,
       tenant->requests.empty() ? &level->idle : &level->waiting);
}

void FairTurns::RemoveTurn(const Turn& turn, Level* level) {
  turns_.erase(turn);
  level->turns.erase(turn);
}

void FairTurns::Forget(Level* level) {
  if (level->turns.empty()) {
    levels_.erase(level->priority);
    return;
  }
  while (!level->idle.empty() &&
         level->idle.begin()->start <= level->virtual_time) {
    const auto first = level->idle.begin();
    const auto tenant = level->tenants.find(first->tenant->name);
    level->idle.erase(first);
    level->tenants.erase(tenant);
  }
}

void FairTurns::Clear() {
  requests_.clear();
  turns_.clear();
  levels_.clear();
}

int FairTurns::num_tenants() const {
  int count = 0;
  for (const auto& [priority, level] : levels_) {
    count += static_cast<int>(level.tenants.size());
  }
  return count;
}

}  // namespace espalier
