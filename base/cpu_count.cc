#include "base/cpu_count.h"

#include <algorithm>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace espalier {

int NumUsableCpus() {
#if defined(__linux__)
  cpu_set_t cpus;  // 1,024 CPUs; the call fails on a larger machine
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
    return std::max(1, CPU_COUNT(&cpus));
  }
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace espalier
