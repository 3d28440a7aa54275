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
  // How long it may take, should some step take long: looked at now and then.
  // What a rendering costs is bounded by the above, the same on any machine.
  std::chrono::milliseconds time{1'000};
};

}  // namespace espalier::jinja
