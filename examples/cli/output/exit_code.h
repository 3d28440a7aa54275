// Exit codes of the program.
#pragma once

namespace espalier::cli {

// As the request format defines them.
enum ExitCode {
  kAllSucceeded = 0,
  kSomeFailed = 1,
  kNothingRan = 2,
};

// Exit code of a program that `signal` ended, by convention.
constexpr int ExitCodeOf(int signal) { return 128 + signal; }

}  // namespace espalier::cli
