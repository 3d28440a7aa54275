// `espalier --device cuda` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/reference.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// Few: as many as a tool goes through in half a minute.
size_t NumTogether() { return Cases(kAllReferenceLines, size_t{4}); }
size_t NumAlone() { return Cases(kAllReferenceLines, size_t{2}); }

ProgramRun RunBatch(size_t num_requests, std::vector<std::string> options) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr"),
                                   "--device", "cuda", "--dtype", "f32"});
  return RunEspalier(options, ReferenceRequests(num_requests));
}

TEST(DeviceGpuTest, EveryHypothesisIsTheReferencesInFloat32) {
  const ProgramRun run = RunBatch(NumTogether(), {});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ExpectReferenceHypotheses(run.out, NumTogether());
}

TEST(DeviceGpuTest, OneAtATimeTheyAreTheReferencesToo) {
  const ProgramRun run =
      RunBatch(NumAlone(), {"--max-running", "1", "--page-size", "4"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ExpectReferenceHypotheses(run.out, NumAlone());
}

class DeviceDTypesGpuTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(DTypes, DeviceDTypesGpuTest,
                         ::testing::Values("f32", "f16", "bf16"),
                         [](const auto& test) { return test.param; });

TEST_P(DeviceDTypesGpuTest, FiguresSayWhatTheDeviceDid) {
  const ProgramRun run =
      RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "--device",
                   "cuda", "--dtype", GetParam(), "--figures", "It rains."});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Il pleut."));
  EXPECT_THAT(run.err, HasSubstr("graph launches"));
  EXPECT_THAT(run.err, HasSubstr("device memory "));
  EXPECT_THAT(run.err, HasSubstr("keys and values "));
}

}  // namespace
}  // namespace espalier::testing
