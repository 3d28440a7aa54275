// `espalier --device cuda` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/reference.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

ProgramRun RunBatch(std::vector<std::string> options) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr"),
                                   "--device", "cuda", "--dtype", "f32"});
  return RunEspalier(options, ReferenceRequests());
}

TEST(DeviceGpuTest, EveryHypothesisIsTheReferencesInFloat32) {
  const ProgramRun run = RunBatch({});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ExpectReferenceHypotheses(run.out);
}

TEST(DeviceGpuTest, OneAtATimeTheyAreTheReferencesToo) {
  const ProgramRun run = RunBatch({"--max-running", "1", "--page-size", "4"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ExpectReferenceHypotheses(run.out);
}

TEST(DeviceGpuTest, FiguresSayWhatTheDeviceDid) {
  for (const char* dtype : {"f32", "f16", "bf16"}) {
    const ProgramRun run =
        RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "--device",
                     "cuda", "--dtype", dtype, "--figures", "It rains."});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("Il pleut."));
    EXPECT_THAT(run.err, HasSubstr("graph launches"));
  }
}

}  // namespace
}  // namespace espalier::testing
