// Simulates seeds, one after the other, until so many events have been:
//
//   soak [EVENTS]               from seed 0; the default is 1e6
//   soak [EVENTS] FIRST_SEED    from another one
//   soak --seed=SEED            this one, which failed
//
// Where a law is broken it says which, and the command that repeats it.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/sim/sim_case.h"
#include "tests/sim/simulation.h"

namespace espalier::testing {
namespace {

// What repeats the seed that runs; made before it, for signal handlers.
char repeat_command[512];
size_t repeat_length = 0;

void SetSeed(const char* program, uint32_t seed, int64_t num_events) {
  repeat_length = std::snprintf(
      repeat_command, sizeof(repeat_command),
      "after %lld events of other seeds; repeat it with: %s --seed=%u\n",
      static_cast<long long>(num_events), program, seed);
}

extern "C" void TellSeed(int signal) {
  if (write(STDERR_FILENO, repeat_command, repeat_length) < 0) _exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int Run(const char* program, uint32_t first_seed, double num_events,
        bool is_one) {
  const auto start = std::chrono::steady_clock::now();
  SimFigures total;
  uint32_t seed = first_seed;
  do {
    SetSeed(program, seed, total.num_events);
    if (is_one)
      std::printf("%s\n", Describe(MakeSimCase(seed)).c_str()),
          std::fflush(stdout);
    const SimReport report = Simulate(seed, {});
    total += report.figures;
    if (!report.fault.empty()) {
      std::fprintf(stderr, "seed %u, event %lld: %s\n%s", seed,
                   static_cast<long long>(report.figures.num_events),
                   report.fault.c_str(), repeat_command);
      return 1;
    }
    if (is_one) std::printf("hash %016llx\n", (unsigned long long)report.hash);
    ++seed;
  } while (!is_one && static_cast<double>(total.num_events) < num_events);
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  std::printf(
      "%lld requests in %lld steps: %lld results as alone, %lld cancelled, "
      "%lld refused\n%lld steps failed, %lld answers were wrong, %lld groups "
      "were put away\n%lld results at deadlines, %lld deadlines before a "
      "token\n"
      "%lld prompt tokens were shared, %lld pages were evicted, "
      "%lld went to the host and %lld came back; the first by turn took %.2f "
      "of its bound\n",
      (long long)total.num_requests, (long long)total.num_steps,
      (long long)total.num_results, (long long)total.num_cancelled,
      (long long)total.num_refused, (long long)total.num_failed_steps,
      (long long)total.num_wrong_answers, (long long)total.num_preemptions,
      (long long)total.num_early_results, (long long)total.num_too_late,
      (long long)total.num_cached_tokens, (long long)total.num_evicted,
      (long long)total.num_swapped_out, (long long)total.num_swapped_in,
      total.max_first_share);
  std::printf("%lld events of %u seeds in %.1f s: no law is broken\n",
              (long long)total.num_events, seed - first_seed, time.count());
  return 0;
}

}  // namespace
}  // namespace espalier::testing

int main(int argc, char** argv) {
  using namespace espalier::testing;  // NOLINT
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) {
    std::signal(signal, TellSeed);
  }
  if (argc == 2 && std::strncmp(argv[1], "--seed=", 7) == 0) {
    return Run(argv[0], std::strtoul(argv[1] + 7, nullptr, 10), 0, true);
  }
  const double num_events = argc > 1 ? std::strtod(argv[1], nullptr) : 1e6;
  const uint32_t first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (num_events < 1 || argc > 3) {
    std::fprintf(stderr, "usage: %s [EVENTS [FIRST_SEED]] | --seed=SEED\n",
                 argv[0]);
    return 2;
  }
  return Run(argv[0], first, num_events, false);
}
