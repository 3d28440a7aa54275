// Log-probabilities of given tokens on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "kernels/logprobs/cuda_logprobs.h"
#include "tests/device_arrays.h"
#include "tests/kernels/each_dtype.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/select/select_oracle.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Clean;
using testing::Download;
using testing::LogSumOf;
using testing::ToBFloat16;
using testing::Upload;

std::vector<CudaTokenScore> Score(
    const std::vector<std::vector<float>>& logits_rows,
    const std::vector<CudaLogprobQuery>& asked, DType dtype) {
  std::vector<float> logits;
  std::vector<uint16_t> narrow;
  for (const auto& logits_row : logits_rows) {
    logits.insert(logits.end(), logits_row.begin(), logits_row.end());
  }
  for (const float x : logits) narrow.push_back(ToBFloat16(x));
  const auto wide_logits = Upload(logits);
  const auto narrow_logits = Upload(narrow);
  std::vector<CudaLogprobQuery> bound = asked;
  bound.push_back({0, 0});  // beyond the count
  const auto device_asked = Upload(bound);
  const auto num_logprob_queries =
      Upload(std::vector{static_cast<int>(asked.size())});
  const auto scores =
      Upload(std::vector<CudaTokenScore>(bound.size(), {kNan, -1}));
  const CudaLogprobsInputs in = {
      .dtype = dtype,
      .vocab_size = static_cast<int>(logits_rows[0].size()),
      .max_asked = static_cast<int>(bound.size()),
      .logits = dtype == DType::kFloat32
                    ? static_cast<const void*>(wide_logits.data())
                    : narrow_logits.data(),
      .num_logprob_queries = num_logprob_queries.data(),
      .asked = device_asked.data()};
  const auto stream = CudaStream::Create();
  EXPECT_TRUE(stream.ok());
  EXPECT_TRUE(CudaLogprobs(in, scores.data(), stream->get()).ok());
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  auto found = Download(scores);
  EXPECT_EQ(found.back().rank, -1);
  found.pop_back();
  return found;
}

class CudaLogprobsTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaLogprobsTest, EachDType(), DTypeName);

TEST_P(CudaLogprobsTest, EqualsTheDefinition) {
  for (const char* kind : {"normal", "ties", "near ties", "constant", "peak",
                           "holes", "outliers", "infinite", "nothing"}) {
    for (const int size : {1, 17, 1000, 2049, 32003, 140000}) {
      SCOPED_TRACE(std::string(kind) + " rows of " + std::to_string(size));
      std::vector<std::vector<float>> logits_rows(3, Row(kind, size));
      std::ranges::rotate(logits_rows[1], logits_rows[1].begin() + size / 3);
      std::vector<CudaLogprobQuery> asked;
      for (int i = 0; i < 12; ++i) {
        asked.push_back({2 - i % 3, (i * 7919 + i % 2) % size});
      }
      const auto found = Score(logits_rows, asked, GetParam());
      for (size_t i = 0; i < asked.size(); ++i) {
        const auto clean = Clean(logits_rows[asked[i].row], GetParam());
        const float max = *std::ranges::max_element(clean);
        const float logit = clean[asked[i].token];
        const auto likelier =
            std::ranges::count_if(clean, [&](float x) { return x > logit; });
        EXPECT_EQ(found[i].rank, 1 + likelier);
        const float log_prob =
            max == -kInf ? -kInf
                         : static_cast<float>((logit == max ? 0 : logit - max) -
                                              LogSumOf(clean));
        EXPECT_TRUE(Near(found[i].log_prob, log_prob,
                         2 * Tolerance(clean.size(), log_prob)))
            << found[i].log_prob << " instead of " << log_prob;
      }
    }
  }
}

// As of a row of its first logits alone, to the bit.
TEST_P(CudaLogprobsTest, EndsARowBeforeTheVocabularyDoes) {
  for (const char* kind : {"normal", "outliers", "holes"}) {
    for (const int size : {17, 2049, 51865}) {
      const std::vector<std::vector<float>> rows(2, Row(kind, size));
      for (const int end : {1, size / 3, size - 1, size}) {
        const std::vector<std::vector<float>> cut(
            2, std::vector(rows[0].begin(), rows[0].begin() + end));
        std::vector<CudaLogprobQuery> asked, whole;
        for (const int token : {0, end / 2, end - 1}) {
          asked.push_back({.row = 1, .token = token, .vocab_end = end});
          asked.push_back({.row = 1, .token = token});
          whole.push_back({.row = 1, .token = token});
        }
        const auto found = Score(rows, asked, GetParam());
        const auto of_cut = Score(cut, whole, GetParam());
        const auto of_all = Score(rows, whole, GetParam());
        for (size_t i = 0; i < whole.size(); ++i) {
          EXPECT_EQ(found[2 * i].log_prob, of_cut[i].log_prob);
          EXPECT_EQ(found[2 * i].rank, of_cut[i].rank);
          EXPECT_EQ(found[2 * i + 1].log_prob, of_all[i].log_prob);
          EXPECT_EQ(found[2 * i + 1].rank, of_all[i].rank);
        }
      }
    }
  }
}

// Log-probabilities use the log-sum that selection has computed.
TEST_P(CudaLogprobsTest, HasTheBitsOfSelection) {
  for (const int size : {17, 5000, 140000}) {
    const std::vector<float> logits_row = Row("normal", size);
    const auto best =
        testing::SelectOnDevice({{{{logits_row}}, 5}}, GetParam());
    std::vector<CudaLogprobQuery> asked;
    for (const Candidate& c : best[0]) asked.push_back({0, c.token});
    const auto found = Score({logits_row}, asked, GetParam());
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(found[i].log_prob, best[0][i].cum_log_prob);
    }
  }
}

TEST(CudaLogprobsErrorsTest, ImpossibleShapesAreRefused) {
  EXPECT_THAT(
      CudaLogprobs({}, nullptr, nullptr),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

}  // namespace
}  // namespace espalier
