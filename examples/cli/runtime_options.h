// What a user chooses of a runtime (runtime.h).
#pragma once

#include <string>

#include "examples/cli/backend.h"

namespace espalier::cli {

struct RuntimeOptions {
  std::string model;  // directory
  // Which prompt template: by name, or by languages; empty is the default.
  std::string template_name;
  std::string from;
  std::string to;
  DeviceOptions device;
  std::string trace;      // file to write a trace to; empty: none
  int max_running = 256;  // requests
};

}  // namespace espalier::cli
