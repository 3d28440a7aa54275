// RenderLimits: what one rendering of a template may cost (budget.h).
#pragma once

#include <chrono>
#include <cstdint>

namespace espalier::jinja {

struct RenderLimits {
  // Nodes of the template that are evaluated, and elements that are visited.
  int64_t steps = 60'000;
  // Bytes of strings that are read or made.
  int64_t bytes = 2 << 20;
  // Both for each byte of the inputs, besides: long conversations take longer.
  int64_t steps_per_input_byte = 20;
  int64_t bytes_per_input_byte = 1'000;
  // The most that both may be, however many bytes the inputs have: what a
  // rendering holds in memory is of the order of `max_bytes`.
  int64_t max_steps = 32'000'000;
  int64_t max_bytes = 1 << 30;
  // Time limit, as a backstop for slow steps. The clock is read after every
  // Budget::kWorkBetweenLooks, so an operation ends late by at most that. The
  // limits above bound the cost of a rendering equally on any machine.
  std::chrono::milliseconds time{1'000};
};

}  // namespace espalier::jinja
