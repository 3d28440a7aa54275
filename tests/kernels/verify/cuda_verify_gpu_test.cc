// Verification on the device against the host's twin, and its laws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/verify/cuda_verify.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_dtype.h"
#include "tests/kernels/verify/cuda_verify_oracle.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cases;

class CudaVerifyTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaVerifyTest, EachDType(), DTypeName);

// As the device reads them, in place.
void RoundLogits(RandomDraft& c, DType dtype) {
  if (dtype == DType::kFloat32) return;
  for (std::vector<float>& row : c.logits) {
    for (float& x : row) x = testing::FromBFloat16(testing::ToBFloat16(x));
  }
}

std::vector<RandomDraft> RandomBatch(int size, int vocab_size, DType dtype,
                                     int seed) {
  std::mt19937 random(seed);
  std::vector<RandomDraft> batch;
  for (int i = 0; i < size; ++i) {
    batch.push_back(DrawRandomDraft(random, vocab_size));
    RoundLogits(batch.back(), dtype);
  }
  return batch;
}

std::vector<VerifyInputs> InputsOf(const std::vector<RandomDraft>& batch) {
  std::vector<VerifyInputs> inputs;
  for (const RandomDraft& c : batch) inputs.push_back(c.inputs());
  return inputs;
}

void ExpectBatchEqualsTwin(const std::vector<RandomDraft>& batch, DType dtype) {
  const std::vector<VerifyInputs> inputs = InputsOf(batch);
  const std::vector<VerifiedTokens> found = VerifyOnDevice(inputs, dtype);
  int num_different = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    SCOPED_TRACE(batch[i].kind + ", sequence " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(
        VerifyOracle(inputs[i]).Check(found[i], num_different));
  }
  // Seldom does rounding decide.
  EXPECT_LE(num_different, 2 + static_cast<int>(batch.size()) / 50);
}

TEST_P(CudaVerifyTest, EqualsTheTwin) {
  for (const int vocab_size :
       Cases(std::vector{1, 2, 5, 63, 1000, 1023, 1024, 1025, 2049, 5000},
             std::vector{5, 1025})) {
    SCOPED_TRACE("rows of " + std::to_string(vocab_size));
    for (int seed = 0; seed < Cases(4, 1); ++seed) {
      ASSERT_NO_FATAL_FAILURE(ExpectBatchEqualsTwin(
          RandomBatch(Cases(40, 8), vocab_size, GetParam(), 100 + seed),
          GetParam()));
    }
  }
}

TEST_P(CudaVerifyTest, EqualsTheTwinOnLargeRows) {
  for (const int vocab_size :
       Cases(std::vector{32003, 128256}, std::vector{32003})) {
    ASSERT_NO_FATAL_FAILURE(ExpectBatchEqualsTwin(
        RandomBatch(Cases(6, 2), vocab_size, GetParam(), 7), GetParam()));
  }
}

TEST_P(CudaVerifyTest, MasksVerifyAsAllowListsDo) {
  for (const int vocab_size : Cases(std::vector{1, 5, 1000, 1025, 5000, 32003},
                                    std::vector{5, 1025})) {
    SCOPED_TRACE("rows of " + std::to_string(vocab_size));
    std::vector<RandomDraft> batch =
        RandomBatch(Cases(60, 10), vocab_size, GetParam(), 31);
    int seed = 0;
    for (RandomDraft& c : batch) {
      const auto restrict_rows = [&](std::vector<VerifyRow>& rows,
                                     size_t first) {
        for (size_t i = 0; i < rows.size(); ++i) {
          std::vector<TokenEdit>& edits = c.edits[first + i];
          ++seed;
          edits = testing::AllowSome(edits, vocab_size,
                                     seed % 2 == 0 ? 0.05 : 0.95, seed);
          rows[i].options.edits = edits;
          rows[i].options.is_allow_list = true;
        }
      };
      restrict_rows(c.target_rows, 0);
      // Else a draft model's logits of illegal tokens are -inf, or it knows no
      // constraint.
      if (seed % 3 == 0) restrict_rows(c.draft_rows, c.target_rows.size());
    }
    const std::vector<VerifyInputs> inputs = InputsOf(batch);
    for (const bool has_hints : {true, false}) {
      EXPECT_EQ(VerifyOnDevice(inputs, GetParam(), 0, has_hints, false,
                               /*by_masks=*/true),
                VerifyOnDevice(inputs, GetParam(), 0, has_hints));
    }
  }
}

// Few rows and many are judged by blocks of different sizes; among others, and
// where the launch is sized for more.
TEST_P(CudaVerifyTest, ASequenceDoesNotDependOnItsBatch) {
  const std::vector<RandomDraft> batch =
      RandomBatch(Cases(60, 10), 3001, GetParam(), 8);
  const std::vector<VerifyInputs> inputs = InputsOf(batch);
  const std::vector<VerifiedTokens> together =
      VerifyOnDevice(inputs, GetParam());
  EXPECT_EQ(VerifyOnDevice(inputs, GetParam(), /*max_more=*/300), together);
  for (size_t i = 0; i < inputs.size(); i += 3) {
    EXPECT_EQ(VerifyOnDevice({inputs[i]}, GetParam())[0], together[i]) << i;
  }
}

TEST_P(CudaVerifyTest, RowsMayLieElsewhere) {
  for (const int vocab_size : {1, 700, 3001, 4096}) {
    const std::vector<RandomDraft> batch =
        RandomBatch(Cases(60, 10), vocab_size, GetParam(), 12);
    const std::vector<VerifyInputs> inputs = InputsOf(batch);
    EXPECT_EQ(VerifyOnDevice(inputs, GetParam()),
              VerifyOnDevice(inputs, GetParam(), 0, true,
                             /*is_scattered=*/true));
  }
}

// Drafts without filters and without rows of logits take two launches; three
// launches give the same bits. The tokens are the twin's.
TEST_P(CudaVerifyTest, FewerLaunchesGiveTheSameTokens) {
  for (const int vocab_size :
       Cases(std::vector{1, 2, 700, 1025, 9000, 128256, 300000},
             std::vector{1025, 32003})) {
    SCOPED_TRACE("rows of " + std::to_string(vocab_size));
    for (const bool has_draft_rows : {false, true}) {
      std::vector<RandomDraft> batch = RandomBatch(
          vocab_size > 100000 ? 6 : Cases(60, 12), vocab_size, GetParam(), 11);
      int seed = 0;
      for (RandomDraft& c : batch) {
        if (!has_draft_rows) c.draft_rows.clear();
        for (std::vector<VerifyRow>* rows : {&c.target_rows, &c.draft_rows}) {
          for (VerifyRow& row : *rows) {
            const SamplingParams& old = row.options.params;
            row.options.params = {.temperature = old.temperature,
                                  .seed = static_cast<uint64_t>(++seed)};
          }
        }
      }
      ASSERT_NO_FATAL_FAILURE(ExpectBatchEqualsTwin(batch, GetParam()));
      const std::vector<VerifyInputs> inputs = InputsOf(batch);
      EXPECT_EQ(VerifyOnDevice(inputs, GetParam()),
                VerifyOnDevice(inputs, GetParam(), 0, /*has_hints=*/false));
    }
  }
}

// Twice in one graph and with other drafts: nothing is kept between calls.
TEST_P(CudaVerifyTest, AGraphTakesOtherDrafts) {
  std::vector<RandomDraft> batch = RandomBatch(20, 1500, GetParam(), 9);
  const auto device = CudaDevice::Open(0);
  ASSERT_TRUE(device.ok());
  const auto stream = CudaStream::Create();
  ASSERT_TRUE(stream.ok());
  DeviceVerifyBatch on_device(VerifyBatch(InputsOf(batch)), GetParam());
  const auto graph = CaptureGraph(stream->get(), [&]() -> absl::Status {
    for (int call = 0; call < 2; ++call) {
      const absl::Status status = on_device.Enqueue(*device, stream->get());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(graph.ok());
  for (int round = 0; round < 3; ++round) {
    std::vector<TokenId> drafts;
    for (RandomDraft& c : batch) {
      for (TokenId& draft : c.drafts) {
        if (round > 0) draft = (draft + 3 * round) % c.vocab_size;
        if (round == 2 && draft % 7 == 0) draft = kNoToken;
      }
      drafts.insert(drafts.end(), c.drafts.begin(), c.drafts.end());
    }
    ASSERT_EQ(
        cudaMemcpy(on_device.drafts(), drafts.data(),
                   drafts.size() * sizeof(TokenId), cudaMemcpyHostToDevice),
        cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(graph->get(), stream->get()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
    EXPECT_EQ(on_device.Answers(), VerifyOnDevice(InputsOf(batch), GetParam()));
  }
}

// To the bit, as CudaSample draws.
TEST_P(CudaVerifyTest, WhatIsDrawnPlainlyIsWhatSamplingDraws) {
  std::vector<RandomDraft> batch =
      RandomBatch(Cases(40, 8), 2500, GetParam(), 10);
  for (RandomDraft& c : batch) c.mode = VerifyMode::kCoupled;
  const std::vector<VerifiedTokens> found =
      VerifyOnDevice(InputsOf(batch), GetParam());
  for (size_t s = 0; s < batch.size(); ++s) {
    std::vector<SampledRow> rows;
    for (int i = 0; i < found[s].length; ++i) {
      const VerifyRow& row = batch[s].target_rows[i];
      rows.push_back(
          {.logits = {row.logits.begin(), row.logits.end()},
           .options = row.options,
           .edits = {row.options.edits.begin(), row.options.edits.end()}});
      // The oracle draws for samples 0, 1, ...
      ASSERT_EQ(row.options.sample, 3);
      rows.back().num_draws = 4;
    }
    const auto drawn = DrawOnDevice(rows, GetParam());
    for (int i = 0; i < found[s].length; ++i) {
      EXPECT_EQ(found[s].tokens[i], drawn[i][3].token);
      if (found[s].tokens[i] < 0) continue;
      EXPECT_EQ(found[s].log_probs[i], drawn[i][3].cum_log_prob);
    }
  }
}

// A row of a target and one of a draft near it, one draft a sequence.
struct PairOfRows {
  std::vector<float> target, draft, bonus;
  SamplingParams params;
};

// Counts of the first two tokens, against their enumeration.
double TokensPValue(const PairOfRows& rows, DType dtype, int num_calls) {
  constexpr int kSequences = 4096;
  const int vocab_size = static_cast<int>(rows.target.size());
  const auto row_of = [&](const std::vector<float>& logits, uint32_t sample,
                          uint32_t position) {
    return VerifyRow{
        .logits = logits,
        .options = {
            .params = rows.params, .sample = sample, .position = position}};
  };
  std::vector<int64_t> counts((vocab_size + 1) * vocab_size);
  for (int call = 0; call < num_calls; ++call) {
    std::vector<std::vector<VerifyRow>> targets, drafts;
    std::vector<TokenId> tokens;
    for (int s = 0; s < kSequences; ++s) {
      const uint32_t sample = call * kSequences + s;
      targets.push_back(
          {row_of(rows.target, sample, 5), row_of(rows.bonus, sample, 6)});
      drafts.push_back({row_of(rows.draft, sample, 5)});
      tokens.push_back(
          DrawDraft(drafts.back()[0], VerifyMode::kRejection).token);
    }
    std::vector<VerifyInputs> inputs;
    for (int s = 0; s < kSequences; ++s) {
      inputs.push_back({.drafts = {&tokens[s], 1},
                        .target_rows = targets[s],
                        .draft_rows = drafts[s]});
    }
    for (const VerifiedTokens& found : VerifyOnDevice(inputs, dtype)) {
      const int second = found.length == 2 ? found.tokens[1] : vocab_size;
      ++counts[found.tokens[0] * (vocab_size + 1) + second];
    }
  }
  const VerifyRow target = row_of(rows.target, 0, 5);
  const VerifyRow draft = row_of(rows.draft, 0, 5);
  const VerifyRow bonus = row_of(rows.bonus, 0, 6);
  const reference::VerifyPosition position =
      reference::VerifyPositionOf(target, &draft, 0);
  const std::vector<double> after =
      reference::DrawProbabilities(bonus.logits, bonus.options);
  std::vector<double> expected;
  for (TokenId t = 0; t < vocab_size; ++t) {
    const double accepted = position.q[t] * position.Acceptance(t);
    for (const double x : after) expected.push_back(accepted * x);
    expected.push_back(position.p[t] - accepted);
  }
  return testing::ChiSquarePValue(expected, counts);
}

TEST_P(CudaVerifyTest, TokensFollowTheirProbabilities) {
  for (const SamplingParams& params :
       {SamplingParams{.seed = 1},
        SamplingParams{.temperature = 0.6f, .seed = 2},
        SamplingParams{.top_k = 4, .seed = 3},
        SamplingParams{.top_p = 0.8f, .seed = 4},
        SamplingParams{.min_p = 0.1f, .seed = 5}}) {
    PairOfRows rows = {.target = Normal(6, 1),
                       .draft = Normal(6, 1),
                       .bonus = Normal(6, 3),
                       .params = params};
    for (size_t t = 0; t < rows.draft.size(); ++t) {
      rows.draft[t] += 0.4f * Normal(6, 2)[t];
      for (std::vector<float>* row : {&rows.target, &rows.draft, &rows.bonus}) {
        float& x = (*row)[t];
        x = testing::FromBFloat16(testing::ToBFloat16(0.5f * x));
      }
    }
    EXPECT_GE(TokensPValue(rows, GetParam(), Cases(8, 1)),
              testing::kLeastPValue);
  }
}

TEST(CudaVerifyShapesTest, ImpossibleShapesAreRefused) {
  const auto device = CudaDevice::Open(0);
  ASSERT_TRUE(device.ok());
  const CudaVerifyInputs good = {
      .num_rows = 3, .vocab_size = 10, .max_sequences = 1};
  for (const auto& spoil : std::vector<void (*)(CudaVerifyInputs&)>{
           [](CudaVerifyInputs& in) { in.num_rows = 0; },
           [](CudaVerifyInputs& in) { in.vocab_size = 0; },
           [](CudaVerifyInputs& in) { in.max_sequences = 0; },
           [](CudaVerifyInputs& in) { in.max_sequences = 70000; },
           [](CudaVerifyInputs& in) { in.dtype = DType::kFloat16; }}) {
    CudaVerifyInputs in = good;
    spoil(in);
    EXPECT_THAT(
        CudaVerify(in, {}, nullptr, *device, nullptr),
        testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  }
}

}  // namespace
}  // namespace espalier
