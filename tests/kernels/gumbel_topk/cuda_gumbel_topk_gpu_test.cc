// Gumbel top-k on the device against the host's twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "kernels/gumbel_topk/cuda_gumbel_topk.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_dtype.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/row_masks.h"
#include "tests/kernels/select/select_oracle.h"

namespace espalier {
namespace {

using testing::Candidates;
using testing::Cases;
using testing::Download;
using testing::FromBFloat16;
using testing::ToBFloat16;
using testing::Upload;

struct GumbelRow {
  std::vector<float> logits;
  GumbelTopKOptions options = {};  // edits are below
  std::vector<TokenEdit> edits = {};
  bool dead = false;
};

// One call. Every row is followed by one that is given no noise: of no group,
// or of one that is not chosen for here. With `by_masks`, masks take the place
// of allow lists.
std::vector<Candidates> GumbelTopKOnDevice(const std::vector<GumbelRow>& rows,
                                           DType dtype, bool by_masks = false) {
  std::vector<float> logits;
  std::vector<uint16_t> narrow;
  std::vector<CudaSelectGroup> groups;
  std::vector<int> row_groups, row_params;
  std::vector<SamplingParams> params;
  std::vector<CudaGumbelRow> gumbel_top_k;
  testing::RowEditArrays row_edits;
  std::vector<TokenEdit>& edits = row_edits.edits;
  std::vector<float> cums;
  std::vector<int> places;  // the rows' groups
  int num_candidates = 0;
  int max_candidates = 1;
  for (const GumbelRow& row : rows) {
    const DrawOptions& draw = row.options.draw;
    const int m = row.options.num_candidates;
    const auto add_group = [&](int num_candidates_of) {
      groups.push_back({static_cast<int>(row_groups.size()), 1,
                        num_candidates_of, num_candidates});
      return static_cast<int>(groups.size()) - 1;
    };
    for (const bool other : {false, true}) {
      logits.insert(logits.end(), row.logits.begin(), row.logits.end());
      const bool has_group = !other || params.size() % 2 == 0;
      row_groups.push_back(has_group ? add_group(other ? 0 : m) : -1);
      if (!other) places.push_back(row_groups.back());
      cums.push_back(row.dead && !other ? -kInf : -3.0f);
      row_params.push_back(other ? -1 : static_cast<int>(params.size()));
      const int begin = static_cast<int>(edits.size());
      if (!other) edits.insert(edits.end(), row.edits.begin(), row.edits.end());
      row_edits.rows.push_back({begin, static_cast<int>(edits.size()),
                                draw.repetition_penalty,
                                !other && draw.is_allow_list});
      gumbel_top_k.push_back({row.options.domain, draw.sample, draw.position});
    }
    params.push_back(draw.params);
    num_candidates += m;
    max_candidates = std::max(max_candidates, m);
  }
  for (const float x : logits) narrow.push_back(ToBFloat16(x));
  const auto wide_logits = Upload(logits);
  const auto narrow_logits = Upload(narrow);
  const auto device_groups = Upload(groups);
  const auto num_groups = Upload(std::vector{static_cast<int>(groups.size())});
  const auto device_row_groups = Upload(row_groups);
  const auto device_row_params = Upload(row_params);
  const auto device_params = Upload(params);
  const auto device_rows = Upload(gumbel_top_k);
  const auto cum = Upload(cums);
  if (by_masks) {
    row_edits = row_edits.WithMasks(static_cast<int>(rows[0].logits.size()));
  }
  const auto device_row_edits = Upload(row_edits.rows);
  const auto device_edits = Upload(edits);
  const auto device_masks = Upload(row_edits.masks);
  CudaGumbelTopKInputs in;
  in.select.dtype = dtype;
  in.select.num_rows = static_cast<int>(row_groups.size());
  in.select.vocab_size = static_cast<int>(rows[0].logits.size());
  in.select.max_groups = static_cast<int>(groups.size());
  in.select.max_candidates = max_candidates;
  in.select.max_total_candidates = num_candidates;
  in.select.logits = dtype == DType::kFloat32
                         ? static_cast<const void*>(wide_logits.data())
                         : narrow_logits.data();
  in.select.num_groups = num_groups.data();
  in.select.groups = device_groups.data();
  in.select.row_groups = device_row_groups.data();
  in.select.cum_log_probs = cum.data();
  in.select.row_edits = device_row_edits.data();
  in.select.edits = device_edits.data();
  in.select.masks = device_masks.data();
  in.rows = device_rows.data();
  in.row_params = device_row_params.data();
  in.params = device_params.data();
  const auto scratch =
      DeviceBuffer<char>::Create(CudaGumbelTopKScratchBytes(in));
  EXPECT_TRUE(scratch.ok());
  EXPECT_EQ(cudaMemset(scratch->data(), 0xFF, scratch->size()), cudaSuccess);
  // The additional last candidate must not change.
  const auto candidates =
      Upload(Candidates(num_candidates + 1, {-1, -77, kNan}));
  constexpr int kOld = 1 << 20;  // left by an earlier call
  const auto counts = Upload(std::vector<int>(groups.size(), kOld));
  const auto device = CudaDevice::Open(0);
  EXPECT_TRUE(device.ok());
  const auto stream = CudaStream::Create();
  EXPECT_TRUE(stream.ok());
  EXPECT_TRUE(CudaGumbelTopK(in, {candidates.data(), counts.data()},
                             scratch->data(), *device, stream->get())
                  .ok());
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  const Candidates all = Download(candidates);
  EXPECT_EQ(all.back().token, -77);
  const std::vector<int> found = Download(counts);
  std::vector<Candidates> split;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int most = groups[g].num_candidates;
    EXPECT_TRUE(most == 0 ? found[g] == kOld
                          : 0 <= found[g] && found[g] <= most);
  }
  for (const int g : places) {
    const int most = groups[g].num_candidates;
    const auto first = all.begin() + groups[g].first_candidate;
    split.emplace_back(first, first + std::clamp(found[g], 0, most));
  }
  return split;
}

double ScoreOf(const GumbelRow& row, TokenId token, float value) {
  const DrawOptions& draw = row.options.draw;
  return value +
         Gumbel(GumbelKey(draw.params.seed, draw.sample, draw.position), token);
}

// Scores must agree at every rank within rounding, and each token's
// log-probability as well.
void ExpectNear(const GumbelRow& row, const Candidates& found, DType dtype) {
  GumbelRow read = row;
  for (float& x : read.logits) {
    if (dtype == DType::kBFloat16) x = FromBFloat16(ToBFloat16(x));
  }
  GumbelTopKOptions options = row.options;
  options.draw.edits = row.edits;
  const auto expected = reference::GumbelTopK(read.logits, options);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].token < 0) {
      ASSERT_EQ(found[i].token, expected[i].token);
      continue;
    }
    ASSERT_GE(found[i].token, 0);
    const double score = ScoreOf(row, expected[i].token, expected[i].log_prob);
    const double tolerance =
        1e-5 + 4e-7 * (std::abs(score) + std::abs(expected[i].log_prob));
    EXPECT_NEAR(ScoreOf(row, found[i].token, found[i].cum_log_prob), score,
                tolerance)
        << "place " << i;
    for (const TokenScore& other : expected) {
      if (other.token != found[i].token) continue;
      EXPECT_NEAR(found[i].cum_log_prob, other.log_prob, tolerance);
    }
  }
}

std::vector<SamplingParams> AllParams() {
  return {
      {},
      {.temperature = 0},
      {.temperature = 0.7f},
      {.top_k = 50},
      {.top_p = 0.9f},
      {.min_p = 0.01f},
      {.typical_p = 0.6f},
      {.top_p = 0.9f, .typical_p = 0.6f},
      {.temperature = 1.5f, .typical_p = 0.7f},
      {.temperature = 0.9f, .min_p = 0.001f, .top_k = 80, .top_p = 0.95f},
  };
}

// Rows of all parameters, for up to `most` candidates each.
std::vector<GumbelRow> Rows(const std::string& kind, int size, int most = 20) {
  std::mt19937 random(size);
  std::vector<GumbelRow> rows;
  for (const SamplingParams& params : AllParams()) {
    for (const auto domain : {ScoreDomain::kLogProbs, ScoreDomain::kLogits}) {
      GumbelRow row = {.logits = Row(kind, size)};
      row.options.domain = domain;
      row.options.num_candidates =
          1 + static_cast<int>(rows.size()) * most / 20 % most;
      row.options.draw.params = params;
      row.options.draw.params.seed = random();
      row.options.draw.sample = random() % 8;
      row.options.draw.position = random() % 100;
      row.options.draw.repetition_penalty = 1.2f;
      if (rows.size() % 3 == 1) {
        for (int t = 0; t < size; t += 1 + size / 40) {
          row.edits.push_back({.token = t,
                               .banned = random() % 4 == 0,
                               .repeated = random() % 2 == 0,
                               .bias = random() % 2 * 0.5f});
        }
        row.options.draw.is_allow_list = rows.size() % 2 == 0;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

class CudaGumbelTopKTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaGumbelTopKTest, EachDType(), DTypeName);

void ExpectEqualsTheTwin(const std::string& kind,
                         const std::vector<GumbelRow>& rows, DType dtype) {
  const auto found = GumbelTopKOnDevice(rows, dtype);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(kind + " row " + std::to_string(i) + " of " +
                 std::to_string(rows[i].logits.size()));
    ASSERT_NO_FATAL_FAILURE(ExpectNear(rows[i], found[i], dtype));
  }
}

TEST_P(CudaGumbelTopKTest, EqualsTheTwinButForRounding) {
  for (const char* kind : {"normal", "ties", "peak", "holes", "nothing"}) {
    for (const int size : {1, 17, 1000, 32003}) {
      ASSERT_NO_FATAL_FAILURE(
          ExpectEqualsTheTwin(kind, Rows(kind, size), GetParam()));
    }
  }
}

// More candidates than one block chooses, up to all tokens.
TEST_P(CudaGumbelTopKTest, EqualsTheTwinWhereManyAreAskedFor) {
  using Kinds = std::vector<std::string>;
  for (const std::string& kind :
       Cases(Kinds{"normal", "ties", "peak", "holes", "nothing"},
             Kinds{"normal", "holes"})) {
    for (const int size :
         Cases(std::vector{1, 17, 1000, 6000}, std::vector{1000})) {
      ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(
          kind, Rows(kind, size, Cases(1000, 300)), GetParam()));
    }
  }
}

TEST_P(CudaGumbelTopKTest, MasksSelectAsAllowListsDo) {
  for (const char* kind : {"normal", "ties", "peak", "holes"}) {
    for (const int size :
         Cases(std::vector{1, 17, 1000, 6000, 32003}, std::vector{17, 1000})) {
      for (const int most : {20, 300}) {
        SCOPED_TRACE(std::string(kind) + " rows of " + std::to_string(size));
        std::vector<GumbelRow> rows = Rows(kind, size, most);
        for (size_t i = 0; i < rows.size(); ++i) {
          rows[i].edits =
              testing::AllowSome(rows[i].edits, size, i % 2 == 0 ? 0.03 : 0.95,
                                 static_cast<uint32_t>(i));
          rows[i].options.draw.is_allow_list = true;
        }
        EXPECT_EQ(GumbelTopKOnDevice(rows, GetParam(), /*by_masks=*/true),
                  GumbelTopKOnDevice(rows, GetParam()));
      }
    }
  }
}

// They get no candidates, and the rows beside them theirs.
TEST_P(CudaGumbelTopKTest, DeadRowsAndThoseThatAreAskedForNothingHaveNone) {
  for (const char* kind : {"normal", "holes"}) {
    for (const int most : {20, 300}) {
      std::vector<GumbelRow> rows = Rows(kind, 1000, most);
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].dead = i % 3 == 0;
        if (i % 3 == 1) rows[i].options.num_candidates = 0;
      }
      const auto found = GumbelTopKOnDevice(rows, GetParam());
      for (size_t i = 0; i < rows.size(); ++i) {
        SCOPED_TRACE(std::string(kind) + " row " + std::to_string(i));
        if (i % 3 < 2) {
          EXPECT_THAT(found[i], ::testing::IsEmpty());
        } else {
          ASSERT_NO_FATAL_FAILURE(ExpectNear(rows[i], found[i], GetParam()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier
