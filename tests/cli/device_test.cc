// --device and --dtype as users meet them, in builds with and without CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

ProgramRun Generate(std::vector<std::string> args) {
  args.insert(args.begin(), {"generate", "-m", ModelDirectory("en-fr"),
                             "--num-beams", "4", "It rains."});
  return RunEspalier(args);
}

void ExpectRefused(const ProgramRun& run, const std::string& message) {
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr(message));
}

TEST(DeviceTest, TheCpuIsTheDefault) {
  const ProgramRun run = Generate({});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Generate({"--device", "cpu"}).out, run.out);
  EXPECT_EQ(Generate({"--device", "cpu", "--dtype", "f32"}).out, run.out);
}

TEST(DeviceTest, UnknownDevicesAndTypesAreQuoted) {
  for (const std::string device :
       {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda1"}) {
    ExpectRefused(
        Generate({"--device=" + device}),
        "--device must be auto, cpu, cuda or cuda:N with N from 0, got \"" +
            device + "\"");
  }
  for (const std::string device : {"cpu", "cuda"}) {
    ExpectRefused(Generate({"--device", device, "--dtype", "int8"}),
                  "--dtype must be f32, f16 or bf16, got \"int8\"");
  }
}

TEST(DeviceTest, OptionsOfTheOtherDeviceAreRefused) {
  for (const std::string dtype : {"bf16", "f16"}) {
    ExpectRefused(
        Generate({"--dtype", dtype}),
        "--dtype " + dtype + " needs --device cuda; the CPU computes in f32");
  }
  ExpectRefused(Generate({"--device", "cuda", "--weights", "int4"}),
                "--weights int4 needs --device cpu; a GPU has them in the type "
                "of --dtype, or in fp8");
  for (const std::string dtype : {"f16", "f32"}) {
    ExpectRefused(
        Generate({"--device", "cuda", "--weights", "fp8", "--dtype", dtype}),
        "--weights fp8 needs --dtype bf16, which a GPU multiplies "
        "them in, got " +
            dtype);
  }
  ExpectRefused(Generate({"--device", "cuda", "--threads", "2"}),
                "--threads needs --device cpu, got 2");
  for (const std::string option : {"--max-candidates", "--max-score-edits"}) {
    ExpectRefused(Generate({"--device", "cuda", option, "2"}),
                  option + " needs --device cpu, got 2");
  }
  ExpectRefused(Generate({"--device", "cuda", "--max-beams", "9",
                          "--max-step-tokens", "8"}),
                "--max-beams must be at most 8 (--max-step-tokens), got 9");
}

// The error names the missing part, and an alternative.
TEST(DeviceTest, CudaWorksOrSaysWhatIsMissing) {
  const ProgramRun run = Generate({"--device", "cuda", "--dtype", "f32"});
#ifdef ESPALIER_CUDA
  if (run.exit_code == 0) {
    EXPECT_EQ(run.out, Generate({}).out);
    return;
  }
  ExpectRefused(run, "no CUDA device");
#else
  ExpectRefused(run, "cmake --preset cuda");
#endif
  EXPECT_THAT(run.err, HasSubstr("device cpu works everywhere"));
}

TEST(DeviceTest, ACudaDeviceThatIsNotThereIsRefused) {
  ExpectRefused(Generate({"--device", "cuda:1000"}), "device cpu");
}

TEST(DeviceTest, HelpSaysWhatDependsOnTheDevice) {
  const std::string help = RunEspalier({"generate", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("default f32, on a GPU bf16"));
  EXPECT_THAT(help, HasSubstr("--device cuda"));
}

}  // namespace
}  // namespace espalier::testing
