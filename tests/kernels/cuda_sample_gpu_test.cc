// Sampling on the device against the host's twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "kernels/cuda_sample.h"
#include "kernels/random.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/select_oracle.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Candidates;
using testing::Cases;
using testing::Download;
using testing::FromBFloat16;
using testing::ToBFloat16;
using testing::Upload;

using Kinds = std::vector<std::string>;
using Sizes = std::vector<int>;

// A row, and what is drawn from it.
struct SampledRow {
  std::vector<float> logits;
  DrawOptions options = {};  // edits are below
  std::vector<TokenEdit> edits = {};
  float cum_log_prob = 0;
  int num_draws = 1;  // samples 0, 1, ... at options.position

  DrawOptions OptionsOf(int sample) const {
    DrawOptions of = options;
    of.sample = sample;
    of.edits = edits;
    return of;
  }
};

std::vector<float> AsRead(const std::vector<float>& logits, DType dtype) {
  if (dtype == DType::kFloat32) return logits;
  std::vector<float> rounded = logits;
  for (float& x : rounded) x = FromBFloat16(ToBFloat16(x));
  return rounded;
}

// One call for all rows. `max_draws` is what the launch is sized for.
std::vector<Candidates> DrawOnDevice(const std::vector<SampledRow>& rows,
                                     DType dtype, int max_draws = 0) {
  std::vector<float> logits;
  std::vector<uint16_t> narrow;
  std::vector<CudaDraw> draws;
  std::vector<int> row_params;
  std::vector<SamplingParams> params;
  std::vector<float> cum;
  std::vector<CudaRowEdits> row_edits;
  std::vector<TokenEdit> edits;
  for (const SampledRow& row : rows) {
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    const int begin = static_cast<int>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    row_edits.push_back({begin, static_cast<int>(edits.size()),
                         row.options.repetition_penalty,
                         row.options.only_edited});
    cum.push_back(row.cum_log_prob);
    // A row that nobody draws from has none.
    row_params.push_back(row.num_draws > 0 ? static_cast<int>(params.size())
                                           : -1);
    params.push_back(row.options.params);
    for (int i = 0; i < row.num_draws; ++i) {
      draws.push_back({.row = static_cast<int>(row_params.size()) - 1,
                       .candidate = static_cast<int>(draws.size()),
                       .beam = i,
                       .sample = static_cast<uint32_t>(i),
                       .position = row.options.position});
    }
  }
  const int num_draws = static_cast<int>(draws.size());
  draws.resize(std::max(max_draws, num_draws));
  for (const float x : logits) narrow.push_back(ToBFloat16(x));
  const auto device = CudaDevice::Open(0);
  EXPECT_TRUE(device.ok());
  const auto wide_logits = Upload(logits);
  const auto narrow_logits = Upload(narrow);
  const auto device_draws = Upload(draws);
  const auto device_num_draws = Upload(std::vector{num_draws});
  const auto device_row_params = Upload(row_params);
  const auto device_params = Upload(params);
  const auto device_cum = Upload(cum);
  const auto device_row_edits = Upload(row_edits);
  const auto device_edits = Upload(edits);
  CudaSampleInputs in;
  in.dtype = dtype;
  in.num_rows = static_cast<int>(rows.size());
  in.vocab_size = static_cast<int>(rows[0].logits.size());
  in.max_draws = static_cast<int>(draws.size());
  in.logits = dtype == DType::kFloat32
                  ? static_cast<const void*>(wide_logits.data())
                  : narrow_logits.data();
  in.num_draws = device_num_draws.data();
  in.draws = device_draws.data();
  in.row_params = device_row_params.data();
  in.params = device_params.data();
  in.cum_log_probs = device_cum.data();
  in.row_edits = device_row_edits.data();
  in.edits = device_edits.data();
  const auto scratch = DeviceBuffer<char>::Create(CudaSampleScratchBytes(in));
  EXPECT_TRUE(scratch.ok());
  EXPECT_EQ(cudaMemset(scratch->data(), 0xFF, scratch->size()), cudaSuccess);
  const auto candidates = Upload(Candidates(draws.size(), {-1, -77, kNan}));
  const auto stream = CudaStream::Create();
  EXPECT_TRUE(stream.ok());
  EXPECT_TRUE(
      CudaSample(in, candidates.data(), scratch->data(), *device, stream->get())
          .ok());
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  const Candidates all = Download(candidates);
  std::vector<Candidates> split;
  auto next = all.begin();
  for (const SampledRow& row : rows) {
    split.emplace_back(next, next + row.num_draws);
    next += row.num_draws;
  }
  for (; next != all.end(); ++next) EXPECT_EQ(next->token, -77);
  return split;
}

// Parameters within a rounding's reach of `params`.
std::vector<SamplingParams> Neighbours(const SamplingParams& params) {
  std::vector<SamplingParams> all = {params};
  for (const float factor : {1 - 3e-6f, 1 + 3e-6f}) {
    SamplingParams near = params;
    if (params.top_p < 1) near.top_p *= factor;
    if (params.typical_p < 1) near.typical_p *= factor;
    near.min_p = std::min(1.0f, near.min_p * factor);
    all.push_back(near);
  }
  return all;
}

// What a row's draws are compared with.
class Expected {
 public:
  Expected(const SampledRow& row, DType dtype)
      : logits_(AsRead(row.logits, dtype)), row_(row) {
    const auto is_nan = [](float x) { return std::isnan(x); };
    has_nan_ = std::ranges::any_of(logits_, is_nan);
    if (has_nan_) return;
    p_ = Probabilities(row.options.params);
    max_ = *std::ranges::max_element(logits_);
    double sum = 0;
    for (const double x : logits_) sum += x == max_ ? 1 : std::exp(x - max_);
    log_sum_ = std::log(sum);
  }

  // Counts in `num_different` what only rounding explains.
  void Check(const Candidate& found, int sample, int& num_different) const {
    const TokenId expected = TokenAt(UniformOf(sample));
    ASSERT_EQ(found.beam, sample);
    if (found.token != expected) {
      ++num_different;
      ASSERT_TRUE(IsNear(found.token, UniformOf(sample)))
          << "token " << found.token << " instead of " << expected;
    }
    if (found.token < 0) {
      ASSERT_EQ(found.cum_log_prob, -kInf);
      return;
    }
    const float logit = logits_[found.token];
    const double log_prob = (logit == max_ ? 0 : logit - max_) - log_sum_;
    const float cum = row_.cum_log_prob + static_cast<float>(log_prob);
    ASSERT_TRUE(Near(found.cum_log_prob, cum,
                     2 * Tolerance(logits_.size(), std::abs(cum) + 1)))
        << found.cum_log_prob << " instead of " << cum;
  }

 private:
  std::vector<double> Probabilities(const SamplingParams& params) const {
    DrawOptions options = row_.OptionsOf(0);
    options.params = params;
    return reference::DrawProbabilities(logits_, options);
  }

  double UniformOf(int sample) const {
    return Uniform({.seed = row_.options.params.seed,
                    .sample = static_cast<uint32_t>(sample),
                    .position = row_.options.position},
                   0);
  }

  // As reference::DrawRow has it.
  TokenId TokenAt(double uniform) const {
    if (has_nan_) return kNotANumber;
    TokenId token = kNoToken;
    double sum = 0;
    for (TokenId t = 0; t < std::ssize(p_) && sum <= uniform; ++t) {
      if (p_[t] == 0) continue;
      token = t;
      sum += p_[t];
    }
    return token;
  }

  bool IsNear(TokenId token, double uniform) const {
    const SamplingParams& params = row_.options.params;
    if (token < 0 || has_nan_ || params.greedy()) return false;
    constexpr double kRounding = 3e-6;
    for (const SamplingParams& near : Neighbours(params)) {
      const std::vector<double> p = Probabilities(near);
      double before = 0;
      for (TokenId t = 0; t < token; ++t) before += p[t];
      if (p[token] > 0 && before - kRounding <= uniform &&
          uniform <= before + p[token] + kRounding) {
        return true;
      }
    }
    return false;
  }

  std::vector<float> logits_;
  const SampledRow& row_;
  bool has_nan_ = false;
  std::vector<double> p_;
  double max_ = 0;
  double log_sum_ = 0;
};

void ExpectEqualsTheTwin(const std::vector<SampledRow>& rows, DType dtype) {
  const std::vector<Candidates> found = DrawOnDevice(rows, dtype);
  int num_draws = 0;
  int num_different = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const Expected expected(rows[i], dtype);
    for (int d = 0; d < rows[i].num_draws; ++d, ++num_draws) {
      ASSERT_NO_FATAL_FAILURE(expected.Check(found[i][d], d, num_different));
    }
  }
  // Seldom does rounding decide.
  EXPECT_LE(num_different, 2 + num_draws / 100);
}

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

// Some of the best and some others.
std::vector<TokenEdit> SomeEdits(const std::vector<float>& logits, int count,
                                 int seed) {
  std::mt19937 random(seed);
  const auto some = [&](float value) { return random() % 2 ? value : 0.0f; };
  std::vector<TokenEdit> edits;
  const auto best = std::ranges::max_element(logits);
  for (int i = 0; i < count; ++i) {
    const auto token = static_cast<TokenId>(i == 0 ? best - logits.begin()
                                                   : random() % logits.size());
    edits.push_back({.token = token,
                     .banned = random() % 4 == 0,
                     .repeated = random() % 2 == 0,
                     .bias = some(0.75f),
                     .penalty = some(-1.5f)});
  }
  std::ranges::sort(edits, {}, &TokenEdit::token);
  const auto rest = std::ranges::unique(edits, {}, &TokenEdit::token);
  edits.erase(rest.begin(), rest.end());
  return edits;
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
        row.options.only_edited = form == 2;
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

class CudaSampleTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaSampleTest,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& test) {
                           return test.param == DType::kFloat32 ? "Float32"
                                                                : "BFloat16";
                         });

// Where cases are few, each type of logits goes through some.
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

// Alone, and in a batch that makes the launch choose other shapes.
TEST_P(CudaSampleTest, ADrawDoesNotDependOnItsBatch) {
  std::vector<SampledRow> rows = Rows("normal", 32003);
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
}

}  // namespace
}  // namespace espalier
