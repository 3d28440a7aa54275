// Sources that are features, from a step to the model. Needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "executor/cuda/step/cuda_source_reader.h"
#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/fake_cuda_model.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;

constexpr FeatureShape kShape = {.num_rows = 160, .num_cols = 6};
constexpr int kLength = kShape.num_rows / 2;

std::shared_ptr<const EncoderInput> InputOfShape(FeatureShape shape,
                                                 int length) {
  return std::make_shared<const EncoderInput>(
      std::make_shared<const FeatureMatrix>(FeatureMatrix{
          .shape = shape,
          .values =
              std::vector<float>(size_t(shape.num_rows) * shape.num_cols)}),
      length);
}

class CudaSourceFeaturesTest : public ::testing::Test {
 protected:
  CudaSourceFeaturesTest() : model_(HopperDevice(0)), stream_(BeginDryRun(90)) {
    const CudaStepLimits limits = {.max_rows = 16,
                                   .max_tokens = 256,
                                   .num_slots = 32,
                                   .table_stride = 32,
                                   .source_stride = 10,
                                   .num_pages = 100,
                                   .max_candidates = 200,
                                   .max_items = 1000,
                                   .max_partials = 1000};
    memory_ = std::make_unique<CudaStepMemory>(
        *CudaStepMemory::Create(limits, PageId{99}, 16));
  }

  absl::Status Read(const std::vector<CudaSourceRead>& reads) {
    if (reader_ == nullptr) {
      reader_ = *CudaSourceReader::Create(&model_, memory_.get());
    }
    return reader_->Enqueue(reads, stream_);
  }

  FakeCudaModel model_;
  cudaStream_t stream_;
  std::unique_ptr<CudaStepMemory> memory_;
  std::unique_ptr<CudaSourceReader> reader_;
};

// Calls of up to 256 positions, three whole sources.
TEST_F(CudaSourceFeaturesTest, ReachTheModelInPlaceOfTokens) {
  model_.AddEncoder(kShape);
  const std::vector<CudaSourceRead> reads(
      5, {.input = InputOfShape(kShape, kLength)});
  ASSERT_OK(Read(reads));
  std::vector<int> num_positions;
  for (const CudaBatch& batch : model_.batches()) {
    num_positions.push_back(batch.sources.num_tokens);
    EXPECT_EQ(batch.sources.tokens, nullptr);
    EXPECT_NE(batch.sources.features, nullptr);
    EXPECT_EQ(batch.num_tokens, 0);
  }
  EXPECT_THAT(num_positions, ElementsAre(3 * kLength, 2 * kLength));
}

TEST_F(CudaSourceFeaturesTest, HaveMemoryForTheSourcesOfACall) {
  model_.AddEncoder();
  const auto of_tokens = *CudaSourceReader::Create(&model_, memory_.get());
  model_.AddEncoder(kShape);
  const auto reader = *CudaSourceReader::Create(&model_, memory_.get());
  const int64_t bytes = int64_t{3} * 160 * 6 * 4;
  EXPECT_EQ(reader->num_bytes(), of_tokens->num_bytes() + bytes);
  EXPECT_EQ(reader->num_pinned_bytes(),
            of_tokens->num_pinned_bytes() + 4 * bytes);
}

TEST_F(CudaSourceFeaturesTest, OtherSourcesAreRefused) {
  model_.AddEncoder(kShape);
  const auto refuses = [&](std::shared_ptr<const EncoderInput> input,
                           const char* what) {
    EXPECT_THAT(Read({{.input = std::move(input)}}),
                StatusIs(absl::StatusCode::kInvalidArgument, what));
  };
  refuses(std::make_shared<const EncoderInput>(std::vector<TokenId>(kLength)),
          "a source must be features for this model, got tokens");
  refuses(InputOfShape({158, 6}, 79),
          "a source must be 160 rows of 6 features and 80 positions, got 158 "
          "of 6 and 79");
  refuses(InputOfShape(kShape, kLength - 1),
          "a source must be 160 rows of 6 features and 80 positions, got 160 "
          "of 6 and 79");
  EXPECT_TRUE(model_.batches().empty());
}

TEST_F(CudaSourceFeaturesTest, AreRefusedByAModelOfTokens) {
  model_.AddEncoder();
  EXPECT_THAT(Read({{.input = InputOfShape(kShape, kLength)}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "a source must be tokens for this model, got features"));
}

}  // namespace
}  // namespace espalier::testing
