// What the program exits with.
#pragma once

namespace espalier::cli {

// As the request format defines them.
enum ExitCode {
  kAllSucceeded = 0,
  kSomeFailed = 1,
  kNothingRan = 2,
  kNothingShown = 3,  // of verify-speculation alone
};

// What a program that was ended by `signal` exits with, by convention.
constexpr int ExitCodeOf(int signal) { return 128 + signal; }

}  // namespace espalier::cli
