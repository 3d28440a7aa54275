// SimCase: the choices of a simulator's seed: a model with its pool, a
// scheduler's options, the submitted requests, and the planted faults.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/engine_options.h"
#include "beam/strategy/search_watcher.h"
#include "request/request.h"
#include "tests/sim/sim_model.h"

namespace espalier::testing {

// Small integers, the same on every platform.
class Dice {
 public:
  explicit Dice(uint32_t seed) : source_(seed) {}

  // In [low, high].
  int Any(int low, int high) {
    return low + static_cast<int>(source_() % (high - low + 1));
  }
  bool Chance(int per_mille) { return Any(0, 999) < per_mille; }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[source_() % values.size()];
  }
  std::mt19937& source() { return source_; }

 private:
  std::mt19937 source_;
};

struct SimCase {
  SimModelOptions model;
  SimModelOptions draft_model;  // agrees with it in part, or not at all
  SchedulerOptions scheduler;
  int plans_in_flight = 1;  // or 2
  // If set, a trace records admissions, so that their order can be checked.
  bool has_trace = false;

  // Each request that is submitted is one of these, with a priority, a salt and
  // prefix_cache of its own; none of the three changes the result, nor does
  // that it speculates.
  std::vector<Request> requests;
  int max_live = 1;     // requests that wait or run at a time
  int arrival_gap = 1;  // time between arrivals at most; a step takes 1 to 8
  int num_priorities = 1;
  int num_salts = 1;
  int salt_period = 1;  // arrivals until others come in use
  int max_burst = 1;    // requests that arrive at once
  int num_tenants = 1;

  // Per thousand arrivals, steps, results or requests.
  int cancellations = 0;
  int failing_steps = 0;
  int wrong_answers = 0;
  int deadlines = 0;
};

SimCase MakeSimCase(uint32_t seed);

// Describes the case on one line.
std::string Describe(const SimCase& sim_case);

// The pages that the request takes at worst.
int64_t NumPagesOf(const SimCase& sim_case, const Request& request);

// True if drafts of `sim_case`'s requests can be verified.
bool VerifiesDrafts(const SimCase& sim_case);

// Returns the request's result in a pool of any size, without other requests
// and without drafts.
absl::StatusOr<Result> SimulateAlone(
    const SimCase& sim_case, const Request& request,
    std::unique_ptr<SearchWatcher> watcher = nullptr);

}  // namespace espalier::testing
