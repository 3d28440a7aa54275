#include "base/cpu_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace espalier {
namespace {

TEST(CpuCountTest, ThereIsAtLeastOneCpu) { EXPECT_GE(NumUsableCpus(), 1); }

// In a thread of its own, which takes its affinity along when it ends.
TEST(CpuCountTest, AThreadConfinedToOneCpuHasOne) {
  std::jthread([] {
    const int cpu = sched_getcpu();
    ASSERT_GE(cpu, 0);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    ASSERT_EQ(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
    EXPECT_EQ(NumUsableCpus(), 1);
  });
}

}  // namespace
}  // namespace espalier
