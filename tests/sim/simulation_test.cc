// The laws of simulation.h over 200 seeds and a million events; `make soak`
// runs more seeds.
#include "tests/sim/simulation.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/few_cases.h"
#include "tests/sim/sim_case.h"

namespace espalier::testing {
namespace {

TEST(SimulationTest, NoSeedBreaksALaw) {
  SimFigures total;
  const uint32_t num_seeds = Cases(200, 20);
  // Few seeds cover events unevenly. From this seed on, all counts below are
  // exceeded by a margin.
  const uint32_t first_seed = Cases(0, 120);
  for (uint32_t i = 0; i < num_seeds; ++i) {
    const uint32_t seed = first_seed + i;
    const SimReport report = Simulate(seed, {.num_events = 5000});
    ASSERT_EQ(report.fault, "") << Describe(MakeSimCase(seed))
                                << "\nrepeat it with: bin/soak --seed=" << seed;
    total += report.figures;
  }
  EXPECT_GE(total.num_events, num_seeds * 5000);
  // Everything that may happen does.
  EXPECT_GT(total.num_results, num_seeds * 50);
  EXPECT_GT(total.num_cancelled, num_seeds * 50);
  EXPECT_GT(total.num_refused, num_seeds / 2);
  EXPECT_GT(total.num_failed_steps, num_seeds);
  EXPECT_GT(total.num_wrong_answers, num_seeds);
  EXPECT_GT(total.num_preemptions, num_seeds);
  EXPECT_GT(total.num_cached_tokens, num_seeds * 100);
  EXPECT_GT(total.num_evicted, num_seeds * 100);
  EXPECT_GT(total.num_early_results, num_seeds * 3);
  EXPECT_GT(total.num_too_late, num_seeds * 5);
  EXPECT_GT(total.num_accepted_tokens, num_seeds * 20);
  EXPECT_GT(total.num_drafted_ahead, num_seeds * 4);
  EXPECT_GT(total.num_swapped_out, num_seeds * 20);
  EXPECT_GT(total.num_swapped_in, num_seeds * 10);
  EXPECT_LT(total.num_swapped_in, total.num_swapped_out);
}

TEST(SimulationTest, ASeedGivesTheSameEventsEachTime) {
  for (uint32_t seed = 0; seed < Cases(20u, 4u); ++seed) {
    const SimReport first = Simulate(seed, {.num_events = 500});
    const SimReport second = Simulate(seed, {.num_events = 500});
    EXPECT_EQ(first.hash, second.hash) << seed;
    EXPECT_EQ(first.figures.num_events, second.figures.num_events) << seed;
    EXPECT_NE(first.hash, Simulate(seed + 1, {.num_events = 500}).hash);
  }
}

}  // namespace
}  // namespace espalier::testing
