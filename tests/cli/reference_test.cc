// The reference's requests through `espalier batch`, all together and one at a
// time, at several page sizes and chunkings.
#include "tests/cli/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/program.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

// Removes cached_tokens, which is not part of the result: it depends on other
// requests with the same prefix.
std::string WithoutCachedTokens(std::string lines) {
  constexpr std::string_view kField = "\"cached_tokens\": ";
  for (size_t at = 0; (at = lines.find(kField, at)) != std::string::npos;) {
    at += kField.size();
    const size_t end = lines.find_first_not_of("0123456789", at);
    lines.replace(at, end - at, "0");
  }
  return lines;
}

std::string BatchOutput(std::vector<std::string> options) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr")});
  const ProgramRun run = RunEspalier(options, ReferenceRequests());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return WithoutCachedTokens(run.out);
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
  for (const char* page_size :
       Cases<std::vector<const char*>>({"1", "16", "64"}, {"64"})) {
    EXPECT_EQ(BatchOutput({"--page-size", page_size}), Together()) << page_size;
  }
}

TEST(ReferenceTest, OneAtATimeAtAnyPageSizeGivesTheSameBytes) {
  for (const char* page_size : Cases<std::vector<const char*>>(
           {"1", "64"}, {"1"})) {  // 16 is the default
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

// With few pages requests wait for one another, or are preempted and resumed.
TEST(ReferenceTest, ScarcePagesGiveTheSameBytes) {
  for (const char* cache : {"on", "off"}) {
    EXPECT_EQ(BatchOutput({"--kv-cache-mib", "3", "--prefix-cache", cache}),
              Together())
        << cache;
  }
}

TEST(ReferenceTest, PagesInHostMemoryGiveTheSameBytes) {
  for (const char* slots : {"1", "64"}) {
    EXPECT_EQ(BatchOutput({"--kv-cache-mib", "3", "--host-cache-mib", slots,
                           "--preempted-pages", "host"}),
              Together())
        << slots;
  }
}

TEST(ReferenceTest, PagesOfOthersGiveTheSameBytes) {
  EXPECT_EQ(BatchOutput({"--prefix-cache", "off"}), Together());
  EXPECT_EQ(BatchOutput({"--prefix-cache", "off", "--page-size", "1"}),
            Together());
}

TEST(ReferenceTest, SharesOfPromptsGiveTheSameBytes) {
  for (const char* share : {"0", "1"}) {
    EXPECT_EQ(BatchOutput({"--prefill-share", share, "--max-step-tokens", "9"}),
              Together())
        << share;
  }
}

}  // namespace
}  // namespace espalier::testing
