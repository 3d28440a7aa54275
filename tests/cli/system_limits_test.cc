// What the program does where the system gives it too little: no descriptors,
// no room for what it prints, closed standard streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

ProgramRun RunShell(const std::string& before, const std::string& args,
                    const std::string& after) {
  return RunProgram(
      "/bin/sh",
      {"-c", Concat(before, " '", ESPALIER_PROGRAM, "' ", args, " ", after)},
      "");
}

TEST(SystemLimitsTest, WhatIsAskedForAndCannotBeWrittenIsAnError) {
  for (const char* args : {"--help", "--version", "generate --help",
                           "batch --help", "trace --help"}) {
    const ProgramRun full = RunShell("", args, ">/dev/full");
    EXPECT_EQ(full.exit_code, 2) << args;
    EXPECT_EQ(full.err,
              "espalier: cannot write stdout: No space left on device\n");
    const ProgramRun closed = RunShell("", args, ">&-");
    EXPECT_EQ(closed.exit_code, 2) << args;
    EXPECT_EQ(closed.err,
              "espalier: cannot write stdout: Bad file descriptor\n");
  }
}

}  // namespace
}  // namespace espalier::testing
