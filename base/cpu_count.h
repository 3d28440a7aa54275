// The number of usable CPUs, as the default size of thread pools.
#pragma once

namespace espalier {

// Returns the number of CPUs that the calling thread may run on (its affinity:
// taskset, cpusets of containers), at least 1; if that is unknown, all CPUs of
// the machine. CPU time quotas are ignored.
int NumUsableCpus();

}  // namespace espalier
