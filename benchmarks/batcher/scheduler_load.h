// SchedulerLoad: a scheduler with a model that computes nothing, to measure the
// cost of scheduling alone. Requests are equal and do not end: each has
// `num_beams` beams, of which half are pruned at each step, and the others
// fork.
//
//   SchedulerLoad load({.num_requests = 64, .num_beams = 4});
//   load.Step();  // the prompts are fed; from here on all decode
#pragma once

#include <chrono>
#include <memory>

#include "batcher/scheduler/scheduler.h"

namespace espalier {

class SchedulerLoad {
 public:
  struct Options {
    int num_requests = 256;
    int num_beams = 1;
    int num_waiting = 0;       // requests that nothing has room for
    bool has_encoder = false;  // prompts are sources
  };

  // All requests are fed, and have a first token.
  explicit SchedulerLoad(const Options& options);
  ~SchedulerLoad();

  // A plan and its answer. Returns the CPU time that Plan and Advance took.
  std::chrono::nanoseconds Step();

  int num_rows() const { return options_.num_requests * options_.num_beams; }

 private:
  void Submit(int i);
  StepResult Answer(const StepPlan& plan);

  const Options options_;
  std::unique_ptr<Scheduler> scheduler_;
  int64_t num_steps_ = 0;
};

}  // namespace espalier
