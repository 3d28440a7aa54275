// The reference's requests through `espalier batch`, all together and one at a
// time, at several page sizes and chunkings.
#include "tests/cli/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

std::string BatchOutput(std::vector<std::string> options) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr")});
  const ProgramRun run = RunEspalier(options, ReferenceRequests());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.out;
}

// The answer all others are compared with.
const std::string& Together() {
  static const auto* const out = new std::string(BatchOutput({}));
  return *out;
}

TEST(ReferenceTest, EveryHypothesisIsTheReferences) {
  ExpectReferenceHypotheses(Together());
}

// Nothing about how requests are run may show in a byte of the answers.
TEST(ReferenceTest, OneAtATimeGivesTheSameBytes) {
  EXPECT_EQ(BatchOutput({"--max-running", "1"}), Together());
}

TEST(ReferenceTest, PageSizesGiveTheSameBytes) {
  for (const char* page_size : {"1", "16", "64"}) {
    EXPECT_EQ(BatchOutput({"--page-size", page_size}), Together()) << page_size;
  }
}

TEST(ReferenceTest, OneAtATimeAtAnyPageSizeGivesTheSameBytes) {
  for (const char* page_size : {"1", "64"}) {  // 16 is the default
    EXPECT_EQ(BatchOutput({"--max-running", "1", "--page-size", page_size}),
              Together())
        << page_size;
  }
}

TEST(ReferenceTest, ChunksOfPromptsAndThreadsGiveTheSameBytes) {
  EXPECT_EQ(BatchOutput({"--max-step-tokens", "13", "--page-size", "3"}),
            Together());
  EXPECT_EQ(BatchOutput({"--threads", "1"}), Together());
  EXPECT_EQ(BatchOutput({"--threads", "3", "--max-step-tokens", "2000"}),
            Together());
}

// With few pages requests wait for one another.
TEST(ReferenceTest, ScarcePagesGiveTheSameBytes) {
  EXPECT_EQ(BatchOutput({"--kv-cache-mib", "3"}), Together());
}

}  // namespace
}  // namespace espalier::testing
