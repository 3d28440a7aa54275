// Behaviour when the system has too little: no descriptors, no space for the
// output, closed standard streams.
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

// With fewer descriptors the system's loader opens no libraries, and no program
// begins.
int FewestDescriptors() {
  int limit = 3;
  while (
      limit < 100 &&
      RunShell(Concat("ulimit -n ", limit, ";"), "--version", "").exit_code !=
          0) {
    ++limit;
  }
  return limit;
}

// From what the loader needs to what a run needs.
TEST(SystemLimitsTest, TooFewDescriptorsAreAnErrorThatSaysSo) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan's vptr check needs descriptors of its own";
#endif
  const ScratchDirectory scratch;
  const int fewest = FewestDescriptors();
  const std::string model = " -m '" + ModelDirectory("en-fr") + "' ";
  const std::string requests =
      scratch.Write("in", "{\"prompt\": \"It rains.\"}\n");
  for (const std::string& args :
       {"generate" + model + "'It rains.'",
        "generate --stream" + model + "'It rains.'",
        "generate" + model + "--trace '" + scratch.path("t") + "' 'It rains.'",
        "batch" + model + "-i '" + requests + "' -o '" + scratch.path("out") +
            "'"}) {
    bool ran = false;
    for (int limit = fewest; limit < fewest + 16; ++limit) {
      const ProgramRun run =
          RunShell(Concat("ulimit -n ", limit, ";"), args, "");
      EXPECT_THAT(run.exit_code, AnyOf(0, 2)) << limit << " " << run.err;
      ran = run.exit_code == 0;
      if (ran) continue;
      EXPECT_THAT(run.err, HasSubstr("Too many open files"));
    }
    EXPECT_TRUE(ran) << args;
  }
}

TEST(SystemLimitsTest, TooLittleMemoryForPagesNamesTheOption) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "its shadow memory is larger than the limit";
#endif
  const std::string args =
      "generate -m '" + ModelDirectory("en-fr") + "' 'It rains.'";
  const ProgramRun run = RunShell("ulimit -v 600000;", args, "");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "espalier: --kv-cache-mib: there is no room for 1024 MiB of keys "
            "and values: Cannot allocate memory\n");
}

// A signal would end the program without its answers.
TEST(SystemLimitsTest, ATraceBeyondTheLimitOfFilesIsAnError) {
  const ScratchDirectory scratch;
  const std::string args = "generate -m '" + ModelDirectory("en-fr") +
                           "' --trace '" + scratch.path("t") + "' 'It rains.'";
  const ProgramRun run = RunShell("ulimit -f 1;", args, "");
  EXPECT_THAT(run.out, HasSubstr("pleut"));
  EXPECT_THAT(run.err, HasSubstr("File too large"));
}

TEST(SystemLimitsTest, ClosedStandardStreamsTakeNoFilesPlace) {
  const ScratchDirectory scratch;
  const std::string trace = scratch.path("trace");
  const std::string args = "generate -m '" + ModelDirectory("en-fr") +
                           "' --trace '" + trace + "' 'It rains.'";
  EXPECT_EQ(RunShell("", args, "<&- >&- 2>&-").exit_code, 2);
  EXPECT_EQ(RunShell("", "trace '" + trace + "'", "2>&-").exit_code, 0);
  EXPECT_EQ(RunShell("", args, "<&- 2>&-").exit_code, 0);
}

}  // namespace
}  // namespace espalier::testing
