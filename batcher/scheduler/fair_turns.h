// FairTurns: assigns turns to waiting requests if there are several tenants.
// Turns (turn.h) are fixed on arrival and used in order, so tenants affect
// neither when a priority is served nor how requests age. Each turn goes to the
// tenant with the fewest tokens so far at that priority: start-time fair
// queueing (Goyal et al. 1996) of tokens, as in the virtual token counter of
// Sheng et al. 2024, https://arxiv.org/abs/2401.00588.
//
//   A submits three requests; when A1 has started, B submits one of equal size:
//
//     turns     A1  A2  A3  B1
//     taken by  A1  A2  B1  A3
//
// At each priority a tenant has a virtual start. The lowest start goes first;
// of equal starts, the older request. Then the start rises by the request's
// cost. A tenant without a waiting request joins at the priority's virtual
// time, which rises by each cost divided by the number of waiting tenants. So a
// tenant accumulates no credit while it is absent, and an endless sequence of
// new tenants does not starve one that waits. Among requests of one tenant,
// turns alone decide; a lone tenant uses its own turns.
//
// Invariant: of two tenants that wait throughout, one receives at most three of
// the largest requests more than the other, however long they wait.
//
// State is dropped with the waiting requests: a priority's state when no
// request waits there, a tenant's when the virtual time has passed its start.
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

  // Adds a request of `cost` tokens, identified by `turn`. Throws
  // std::bad_alloc, having changed nothing.
  // REQUIRES: the turn is not used yet; cost >= 1.
  void Push(const Turn& turn, int64_t priority, std::string_view tenant,
            int64_t cost);

  // next_turn() is the next turn. NextRequest() returns the own turn of the
  // request that takes it.
  // REQUIRES: !empty().
  const Turn& next_turn() const { return turns_.begin()->first; }
  const Turn& NextRequest() const;

  // Starts that request and charges its tenant.
  // REQUIRES: !empty().
  void Take();

  // Removes a request without a charge. Its turn is removed too or, if another
  // request has taken it, the next turn of its priority.
  // REQUIRES: the request is here.
  void Remove(const Turn& turn);

  void Clear();

  // Returns the number of tenants with state.
  int num_tenants() const;

 private:
  struct Tenant;
  // A tenant's place at its priority.
  struct Place {
    int64_t start = 0;
    Turn oldest;  // its first request; unset if none waits
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
    int64_t start = 0;      // virtual, of the next request
    std::set<Turn> requests = {};
    Places::iterator place = {};  // in `waiting` of its priority, or in `idle`
  };
  // State of one priority.
  struct Level {
    int64_t priority = 0;
    int64_t virtual_time = 0;
    std::map<std::string, Tenant, std::less<>> tenants = {};
    Places waiting = {};
    Places idle = {};  // not waiting, ahead of the virtual time
    std::set<Turn> turns = {};
  };
  struct Request {
    Level* level = nullptr;
    Tenant* tenant = nullptr;
    int64_t cost = 0;
  };

  // Does not allocate.
  static void Move(Tenant* tenant, Places* from, Places* to);
  // Removes a request from its tenant, and moves the tenant to its new place.
  void RemoveRequest(const Turn& turn, Level* level, Tenant* tenant);
  void RemoveTurn(const Turn& turn, Level* level);
  // Drops tenants behind the virtual time, and the level if it is empty.
  void Forget(Level* level);

  std::map<int64_t, Level> levels_;   // by priority
  std::map<Turn, Request> requests_;  // by their own turns
  std::map<Turn, Level*> turns_;      // unused ones
};

}  // namespace espalier
