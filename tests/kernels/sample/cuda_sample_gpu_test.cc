// Sampling on the device against the host's twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "kernels/sample/cuda_sample.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_dtype.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/sample/cuda_sample_oracle.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Candidates;
using testing::Cases;

using Kinds = std::vector<std::string>;
using Sizes = std::vector<int>;

std::vector<SamplingParams> AllParams() {
  return {
      {},
      {.temperature = 0},
      {.temperature = 0.7f},
      {.temperature = 100},
      {.temperature = 1e-30f},
      {.top_k = 1},
      {.top_k = 50},
      {.temperature = 2, .top_k = 700},
      {.temperature = 3, .top_k = 5000},
      {.top_k = 1 << 30},
      {.top_p = 0.1f},
      {.top_p = 0.9f},
      {.temperature = 4, .top_p = 0.9999f},
      {.min_p = 0.05f},
      {.min_p = 1},
      {.temperature = 5, .min_p = 1e-3f, .top_p = 0.99f},
      {.typical_p = 0.5f},
      {.temperature = 2, .typical_p = 0.95f},
      {.temperature = 0.8f, .min_p = 0.02f, .top_k = 50, .top_p = 0.9f},
      {.temperature = 1.3f, .top_k = 20, .top_p = 0.95f, .typical_p = 0.8f},
      {.temperature = 0, .min_p = 0.5f, .top_k = 3, .top_p = 0.3f},
  };
}

// Rows of one kind with all parameters: plain, edited, and with nothing else.
std::vector<SampledRow> Rows(const std::string& kind, int size) {
  std::vector<float> logits = Row(kind, size);
  std::vector<SampledRow> rows;
  uint64_t seed = 1;
  for (const SamplingParams& params : AllParams()) {
    for (int form = 0; form < 3; ++form) {
      SampledRow row = {.logits = logits,
                        .options = {.params = params},
                        .cum_log_prob = -0.5f * form,
                        .num_draws = 6};
      row.options.params.seed = seed++;
      row.options.position = static_cast<uint32_t>(seed * 3);
      if (form > 0) {
        row.edits = SomeEdits(logits, 80, static_cast<int>(seed));
        row.options.repetition_penalty = 1.3f;
        row.options.is_allow_list = form == 2;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

class CudaSampleTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaSampleTest, EachDType(), DTypeName);

// With few cases, each dtype gets some of the kinds.
Kinds OneOf(DType dtype, Kinds of_float32, Kinds of_bfloat16) {
  return dtype == DType::kFloat32 ? of_float32 : of_bfloat16;
}

TEST_P(CudaSampleTest, EqualsTheTwinOnSmallRows) {
  for (const std::string& kind :
       Cases(Kinds{"normal", "ties", "near ties", "constant", "rising", "peak",
                   "holes", "outliers", "infinite", "widest", "nothing"},
             OneOf(GetParam(), Kinds{"normal", "infinite"},
                   Kinds{"near ties", "constant"}))) {
    for (const int size :
         Cases(Sizes{1, 2, 17, 513, 1000, 2049}, Sizes{17, 2049})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(Rows(kind, size), GetParam()));
    }
  }
}

TEST_P(CudaSampleTest, EqualsTheTwinWithoutNan) {
  for (const char* kind : {"holes", "infinite", "nothing"}) {
    for (const int size : Cases(Sizes{17, 2049}, Sizes{17})) {
      SCOPED_TRACE(std::string(kind) + " rows of " + std::to_string(size));
      std::vector<SampledRow> rows = Rows(kind, size);
      for (SampledRow& row : rows) {
        for (float& x : row.logits) x = std::isnan(x) ? -kInf : x;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, GetParam()));
    }
  }
}

TEST_P(CudaSampleTest, EqualsTheTwinOnLargeRows) {
  for (const std::string& kind :
       Cases(Kinds{"normal", "peak", "constant", "near ties"},
             OneOf(GetParam(), Kinds{"normal"}, Kinds{"constant"}))) {
    SCOPED_TRACE(kind);
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(Rows(kind, 32003), GetParam()));
  }
}

TEST_P(CudaSampleTest, EqualsTheTwinOnTheLargestRows) {
  std::vector<SampledRow> rows = Rows("normal", 151936);
  ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, GetParam()));
}

// Few draws and many are launched in different ways.
TEST_P(CudaSampleTest, MasksSampleAsAllowListsDo) {
  for (const std::string& kind :
       Cases(Kinds{"normal", "ties", "constant", "peak", "holes", "infinite"},
             OneOf(GetParam(), Kinds{"normal"}, Kinds{"constant"}))) {
    for (const int size :
         Cases(Sizes{17, 1000, 2049, 32003}, Sizes{17, 2049})) {
      SCOPED_TRACE(kind + " rows of " + std::to_string(size));
      std::vector<SampledRow> rows = Rows(kind, size);
      for (size_t i = 0; i < rows.size(); ++i) {
        if (i % 3 == 2) continue;  // has an allow list
        rows[i].edits =
            testing::AllowSome(rows[i].edits, size, i % 2 == 0 ? 0.02 : 0.96,
                               static_cast<uint32_t>(i));
        rows[i].options.is_allow_list = true;
      }
      const auto draw = [&](const std::vector<SampledRow>& of, int max_draws,
                            bool by_masks) {
        return DrawOnDevice(of, GetParam(), max_draws, 0, nullptr, by_masks);
      };
      ASSERT_EQ(draw(rows, 0, true), draw(rows, 0, false));
      for (size_t i = 0; i < rows.size(); i += Cases(5, 20)) {
        for (const int max_draws : {0, 1000}) {
          ASSERT_EQ(draw({rows[i]}, max_draws, true),
                    draw({rows[i]}, max_draws, false))
              << "row " << i;
        }
      }
    }
  }
}

// Alone, and in a batch that makes the launch choose other shapes.
TEST_P(CudaSampleTest, ADrawDoesNotDependOnItsBatch) {
  std::vector<SampledRow> rows = Rows("normal", Cases(32003, 3001));
  const auto together = DrawOnDevice(rows, GetParam());
  for (size_t i = 0; i < rows.size(); i += Cases(5, 16)) {
    const auto alone = DrawOnDevice({rows[i]}, GetParam());
    const auto wide = DrawOnDevice({rows[i]}, GetParam(), 1000);
    EXPECT_EQ(alone[0], together[i]) << "row " << i;
    EXPECT_EQ(alone[0], wide[0]) << "row " << i;
  }
}

TEST_P(CudaSampleTest, DeadRowsGiveNoToken) {
  std::vector<SampledRow> rows = Rows("normal", 1000);
  rows.resize(4);
  rows[1].cum_log_prob = -kInf;
  rows[2].num_draws = 0;
  const auto found = DrawOnDevice(rows, GetParam());
  for (const Candidate& c : found[1]) {
    EXPECT_EQ(c.token, kNoToken);
    EXPECT_EQ(c.cum_log_prob, -kInf);
  }
  EXPECT_GE(found[0][0].token, 0);
  EXPECT_GE(found[3][0].token, 0);
}

TEST_P(CudaSampleTest, DrawsFollowTheirProbabilities) {
  double lowest = 1;
  for (const int size : Cases(Sizes{5, 300, 4096}, Sizes{300})) {
    int index = 0;
    for (const SamplingParams& params : AllParams()) {
      SampledRow row = {.logits = Row("normal", size),
                        .options = {.params = params},
                        .num_draws = Cases(std::max(2000, 10 * size), 100)};
      row.options.params.seed = 77 + size + index++;
      if (index % 2 == 0) row.edits = SomeEdits(row.logits, 30, index);
      row.options.repetition_penalty = 0.8f;
      const auto p = reference::DrawProbabilities(
          AsRead(row.logits, GetParam()), row.OptionsOf(0));
      std::vector<int64_t> counts(size);
      const auto found = DrawOnDevice({row}, GetParam());
      for (const Candidate& c : found[0]) {
        ASSERT_GE(c.token, 0);
        ++counts[c.token];
      }
      const double p_value = testing::ChiSquarePValue(p, counts);
      EXPECT_GE(p_value, 1e-6) << "size " << size << ", params " << index;
      lowest = std::min(lowest, p_value);
    }
  }
  RecordProperty("lowest_p_value", std::to_string(lowest));
}

TEST(CudaSampleShapesTest, RefusesImpossibleShapes) {
  const auto device = CudaDevice::Open(0);
  ASSERT_TRUE(device.ok());
  CudaSampleInputs in;
  in.num_rows = 1;
  in.max_draws = 1;
  EXPECT_THAT(
      CudaSample(in, nullptr, nullptr, *device, nullptr),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  in.vocab_size = kMaxCudaSampleVocab + 1;
  EXPECT_THAT(
      CudaSample(in, nullptr, nullptr, *device, nullptr),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  in.vocab_size = 8;
  in.dtype = DType::kBFloat16;
  float copy = 0;
  in.copies = &copy;
  EXPECT_THAT(
      CudaSample(in, nullptr, nullptr, *device, nullptr),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

}  // namespace
}  // namespace espalier
