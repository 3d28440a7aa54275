// `espalier --device cuda` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/cli/program.h"
#include "tests/cli/reference.h"
#include "tests/family_models.h"
#include "tests/few_cases.h"
#include "tests/reference_cases.h"

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

// More rows than the kernels of few rows take, of matrices that are all small.
TEST(DeviceGpuTest, InBfloat16NearlyAllBestHypothesesAreThoseOfFloat32) {
  const auto run = [](const char* dtype) {
    return RunEspalier({"batch", "-m", ModelDirectory("en-fr"), "--device",
                        "cuda", "--dtype", dtype},
                       ReferenceRequests(NumTogether()));
  };
  const std::vector<json::value> f32 = ParseLines(run("f32").out);
  const std::vector<json::value> bf16 = ParseLines(run("bf16").out);
  ASSERT_EQ(bf16.size(), f32.size());
  size_t num_equal = 0;
  for (size_t i = 0; i < f32.size(); ++i) {
    const auto best = [i](const std::vector<json::value>& answers) {
      return answers[i].at("hypotheses").at(0).at("tokens");
    };
    num_equal += best(bf16) == best(f32);
  }
  EXPECT_GE(num_equal, f32.size() * 9 / 10);
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

// cuBLASLt takes longer to load and to choose products than a small model to
// answer (kernels/matmul/cuda_small_gemm.h).
TEST_P(DeviceDTypesGpuTest, OnlyF32LoadsCublasForASmallModel) {
  ASSERT_EQ(setenv("LD_DEBUG", "files", /*overwrite=*/1), 0);
  const ProgramRun run =
      RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "--device",
                   "cuda", "--dtype", GetParam(), "It rains."});
  unsetenv("LD_DEBUG");
  EXPECT_EQ(run.exit_code, 0)
      << run.err.substr(run.err.size() - std::min<size_t>(run.err.size(), 500));
  EXPECT_EQ(run.err.find("libcublasLt") != std::string::npos,
            GetParam() == std::string_view("f32"));
}

// Lines of a family's reference, as requests.
std::string RequestsOfFamily(const std::string& model) {
  std::string lines;
  for (json::value& line :
       ReadReferenceLines(FamilyPath(model) + "/requests.jsonl")) {
    line.as_object().erase("hypotheses");
    lines += WriteJson(line) + "\n";
  }
  return lines;
}

// Translations that go on from beginnings of all kinds.
std::string RequestsWithDecoderPrompts() {
  std::string lines;
  const char* const starts[] = {R"("num_beams": 1)", R"("num_beams": 4)",
                                R"("do_sample": true, "num_beams": 1, "n": 3,)"
                                R"( "seed": 7, "temperature": 0.7)"};
  const char* const beginnings[] = {"", R"(, "decoder_prompt": "Où se")",
                                    R"(, "decoder_prompt": "La gare")",
                                    R"(, "decoder_prompt_tokens": [7, 8, 9])"};
  for (const char* prompt : {"Where is the station?", "It rains.", "Hug me."}) {
    for (const char* start : starts) {
      for (const char* beginning : beginnings) {
        lines += Concat(R"({"prompt": ")", prompt, R"(", "params": {)", start,
                        beginning, "}}\n");
      }
    }
  }
  return lines;
}

// The tokens of each line's hypotheses.
std::vector<json::value> TokensOf(const std::string& output) {
  std::vector<json::value> tokens;
  for (const json::value& answer : ParseLines(output)) {
    json::array& of_line = tokens.emplace_back(json::array()).as_array();
    for (const json::value& hypothesis : answer.at("hypotheses").as_array()) {
      of_line.push_back(hypothesis.at("tokens"));
    }
  }
  return tokens;
}

TEST(DeviceGpuTest, EncoderDecodersAnswerAsOnTheCpu) {
  for (const std::string& model : EncoderFamilyModels()) {
    SCOPED_TRACE(model);
    const std::string requests = RequestsOfFamily(model);
    std::vector<std::string> outputs;
    for (const char* device : {"cpu", "cuda"}) {
      const ProgramRun run =
          RunEspalier({"batch", "-m", FamilyPath(model), "--device", device,
                       "--dtype", "f32", "--figures"},
                      requests);
      EXPECT_EQ(run.exit_code, 0) << run.err;
      outputs.push_back(run.out);
    }
    EXPECT_EQ(TokensOf(outputs[0]), TokensOf(outputs[1]));
    EXPECT_FALSE(TokensOf(outputs[0]).empty());
  }
}

TEST(DeviceGpuTest, NoDraftModelRunsBesideAnEncoder) {
  const ProgramRun run =
      RunEspalier({"batch", "-m", FamilyPath("marian"), "--device", "cuda",
                   "--dtype", "f32", "--draft-model", FamilyPath("qwen3")},
                  RequestsOfFamily("marian"));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("must be unset for a model with an encoder"));
}

TEST(DeviceGpuTest, DecoderPromptsAreContinuedAsOnTheCpu) {
  const auto run = [](std::vector<std::string> device) {
    device.insert(device.begin(),
                  {"batch", "-m", ModelDirectory("en-fr-marian"), "--dtype",
                   "f32", "--device"});
    return RunEspalier(device, RequestsWithDecoderPrompts());
  };
  const ProgramRun cpu = run({"cpu"});
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  const ProgramRun cuda = run({"cuda"});
  EXPECT_EQ(cuda.exit_code, 0) << cuda.err;
  EXPECT_EQ(TokensOf(cuda.out), TokensOf(cpu.out));
}

}  // namespace
}  // namespace espalier::testing
