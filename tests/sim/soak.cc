// Simulates seeds on all cores until there were EVENTS events:
//
//   soak [EVENTS]               from seed 0; the default is 1e6
//   soak [EVENTS] FIRST_SEED    from another one
//   soak --seed=SEED            this one, which failed
//
// For a broken law, prints the law and the command that repeats it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/sim_case.h"
#include "tests/sim/simulation.h"

namespace espalier::testing {
namespace {

// Command that repeats the seed of this thread. It is formatted before the run,
// because the signal handler, which runs on the failing thread, cannot format
// it.
thread_local char repeat_command[512];
thread_local size_t repeat_length = 0;

void SetSeed(const char* program, uint32_t seed) {
  repeat_length =
      std::snprintf(repeat_command, sizeof(repeat_command),
                    "repeat it with: %s --seed=%u\n", program, seed);
}

extern "C" void TellSeed(int signal) {
  if (write(STDERR_FILENO, repeat_command, repeat_length) < 0) _exit(1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// Prints the broken law and the command that repeats it. True if no law was
// broken.
bool Tell(uint32_t seed, const SimReport& report) {
  if (report.fault.empty()) return true;
  std::fprintf(stderr, "seed %u, event %lld: %s\n%s", seed,
               static_cast<long long>(report.figures.num_events),
               report.fault.c_str(), repeat_command);
  return false;
}

int RunOne(const char* program, uint32_t seed) {
  SetSeed(program, seed);
  std::printf("%s\n", Describe(MakeSimCase(seed)).c_str());
  std::fflush(stdout);
  const SimReport report = Simulate(seed, {});
  if (!Tell(seed, report)) return 1;
  std::printf("hash %016llx\n", static_cast<unsigned long long>(report.hash));
  return 0;
}

// Seeds in ascending order, each run by the thread that is free first.
class Soak {
 public:
  Soak(const char* program, uint32_t first_seed, double num_events)
      : program_(program), num_events_(num_events), next_seed_(first_seed) {}

  // Returns at the first broken law, or when there have been enough events.
  void Run() {
    std::vector<std::thread> threads;
    const unsigned num_threads =
        std::max(1U, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < num_threads; ++i) {
      threads.emplace_back([this] { RunSeeds(); });
    }
    for (std::thread& thread : threads) thread.join();
    if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K");
  }

  bool is_broken() const { return is_broken_; }
  uint32_t num_seeds() const { return num_seeds_; }
  const SimFigures& total() const { return total_; }

 private:
  void RunSeeds() {
    while (!is_done_) {
      const uint32_t seed = next_seed_++;
      SetSeed(program_, seed);
      const SimReport report = Simulate(seed, {});
      std::scoped_lock lock(mutex_);
      ++num_seeds_;
      total_ += report.figures;
      if (!Tell(seed, report)) is_broken_ = true;
      if (is_broken_ || static_cast<double>(total_.num_events) >= num_events_) {
        is_done_ = true;
      }
      ShowProgress();
    }
  }

  void ShowProgress() const {
    if (isatty(STDERR_FILENO) == 0) return;
    std::fprintf(stderr, "\r%u seeds, %.0f of %.0f million events", num_seeds_,
                 static_cast<double>(total_.num_events) / 1e6,
                 num_events_ / 1e6);
  }

  const char* const program_;
  const double num_events_;
  std::atomic<uint32_t> next_seed_;
  std::atomic<bool> is_done_ = false;
  std::mutex mutex_;  // guards the members below
  SimFigures total_;
  uint32_t num_seeds_ = 0;
  bool is_broken_ = false;
};

void PrintFigures(const SimFigures& total) {
  std::printf(
      "%lld requests in %lld steps: %lld results as alone, %lld cancelled, "
      "%lld refused\n%lld steps failed, %lld answers were wrong, %lld groups "
      "were preempted\n%lld results at deadlines, %lld deadlines before a "
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
}

int RunAll(const char* program, uint32_t first_seed, double num_events) {
  const auto start = std::chrono::steady_clock::now();
  Soak soak(program, first_seed, num_events);
  soak.Run();
  if (soak.is_broken()) return 1;
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  PrintFigures(soak.total());
  std::printf("%lld events of %u seeds in %.1f s: no law is broken\n",
              static_cast<long long>(soak.total().num_events), soak.num_seeds(),
              time.count());
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
    return RunOne(argv[0], std::strtoul(argv[1] + 7, nullptr, 10));
  }
  const double num_events = argc > 1 ? std::strtod(argv[1], nullptr) : 1e6;
  const uint32_t first = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  if (num_events < 1 || argc > 3) {
    std::fprintf(stderr, "usage: %s [EVENTS [FIRST_SEED]] | --seed=SEED\n",
                 argv[0]);
    return 2;
  }
  return RunAll(argv[0], first, num_events);
}
