// FairTurns: which request takes the turn that comes up, where several tenants
// wait. Turns (turn.h) are fixed on arrival and used up in their order, so
// tenants do not change when a priority is served, nor how requests age. Each
// turn goes to the tenant that was given the fewest tokens at that priority:
// start-time fair queueing (Goyal et al. 1996) of tokens, as in the virtual
// token counter of Sheng et al. 2024, https://arxiv.org/abs/2401.00588.
//
//   A submits three requests; when A1 has started, B submits one of equal size:
//
//     turns     A1  A2  A3  B1
//     taken by  A1  A2  B1  A3
//
// At each priority a tenant has a virtual start. The lowest start goes first;
// of equal starts, the older request. Then the start rises by the request's
// cost. A tenant without a waiting request joins at the priority's virtual
// time, which rises by each cost divided by the number of tenants that wait. So
// a tenant saves nothing up while it is absent, and an endless row of new
// tenants does not starve one that waits. Among requests of one tenant, turns
// alone decide; a lone tenant has every turn of its own.
//
// Law: of two tenants that wait throughout, one is given at most three of the
// largest requests more than the other, however long that is.
//
// State ends with the requests that wait: that of a priority when none waits
// there, that of a tenant when the virtual time has passed its start.
//
// Belongs to its scheduler's strand. Every call is O(log n).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "batcher/scheduler/turn.h"

namespace espalier {

class FairTurns {
 public:
  FairTurns() = default;
  FairTurns(const FairTurns&) = delete;
  FairTurns& operator=(const FairTurns&) = delete;

  bool empty() const { return requests_.empty(); }

  // Adds a request of `cost` tokens, which `turn` names. Throws std::bad_alloc,
  // and has done nothing then.
  // REQUIRES: the turn is not used yet; cost >= 1.
  void Push(const Turn& turn, int64_t priority, std::string_view tenant,
            int64_t cost);

  // The turn that comes up; and, by its own turn, the request that takes it.
  // REQUIRES: !empty().
  const Turn& next_turn() const { return turns_.begin()->first; }
  const Turn& NextRequest() const;

  // That request starts, and its tenant is charged.
  // REQUIRES: !empty().
  void Take();

  // A request is gone, for nothing. Its turn is gone, too, or, if another has
  // taken that, the next of its priority.
  // REQUIRES: it is here.
  void Remove(const Turn& turn);

  void Clear();

  // That are remembered.
  int num_tenants() const;

 private:
  struct Tenant;
  // A tenant's place at its priority.
  struct Place {
    int64_t start = 0;
    Turn oldest;  // of its requests; none if it does not wait
    Tenant* tenant = nullptr;
    bool operator<(const Place& other) const {
      if (start != other.start) return start < other.start;
      if (oldest != other.oldest) return oldest < other.oldest;
      return std::less<Tenant*>()(tenant, other.tenant);
    }
  };
  using Places = std::set<Place>;
  struct Tenant {
    std::string_view name;  // its key
    int64_t start = 0;      // virtual, of his next request
    std::set<Turn> requests = {};
    Places::iterator place = {};  // in `waiting` of its priority, or in `idle`
  };
  // One priority.
  struct Level {
    int64_t priority = 0;
    int64_t virtual_time = 0;
    std::map<std::string, Tenant, std::less<>> tenants = {};
    Places waiting = {};
    Places idle = {};  // that do not wait, ahead of the virtual time
    std::set<Turn> turns = {};
  };
  struct Request {
    Level* level = nullptr;
    Tenant* tenant = nullptr;
    int64_t cost = 0;
  };

  // Allocates nothing.
  static void Move(Tenant* tenant, Places* from, Places* to);
  // Takes a request out that its tenant has, and the tenant to where he
  // belongs.
  void RemoveRequest(const Turn& turn, Level* level, Tenant* tenant);
  void RemoveTurn(const Turn& turn, Level* level);
  // Of tenants behind the virtual time, and of the level if it is empty.
  void Forget(Level* level);

  std::map<int64_t, Level> levels_;   // by priority
  std::map<Turn, Request> requests_;  // by their own turns
  std::map<Turn, Level*> turns_;      // that are not used up
};

}  // namespace espalier
