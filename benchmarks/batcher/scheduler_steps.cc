// Runs steps of a scheduler without a model, for a tool that counts
// instructions (check_instructions.py):
//
//   scheduler_steps REQUESTS BEAMS STEPS [encoder]
//
// The last argument gives the model an encoder, so that each request has a
// source.
// Without arguments it prints what compiled it.
#include <cstdio>
#include <cstdlib>

#include "benchmarks/batcher/scheduler_load.h"

int main(int argc, char** argv) {
  if (argc < 4) {
#if defined(__clang__)
    std::printf("clang %d", __clang_major__);
#else
    std::printf("gcc %d.%d", __GNUC__, __GNUC_MINOR__);
#endif
#if defined(__x86_64__)
    std::printf(" x86-64");
#else
    std::printf(" other");
#endif
#if defined(NDEBUG) && defined(__OPTIMIZE__)
    std::printf(" release\n");
#else
    std::printf(" debug\n");
#endif
    return 0;
  }
  espalier::SchedulerLoad load({.num_requests = std::atoi(argv[1]),
                                .num_beams = std::atoi(argv[2]),
                                .has_encoder = argc > 4});
  for (int i = 0; i < std::atoi(argv[3]); ++i) load.Step();
}
