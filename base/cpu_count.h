// How many CPUs there are to use: what a pool of one thread a CPU is made with.
#pragma once

namespace espalier {

// The CPUs that the calling thread may run on (its affinity: taskset, cpusets
// of containers), at least 1. Where the system does not tell, all CPUs of the
// machine. Quotas of CPU time are not looked at.
int NumUsableCpus();

}  // namespace espalier
