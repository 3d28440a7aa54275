// What the device has of a batch after any other batches: all of it that a step
// reads, and nothing is sent twice.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "executor/cuda/cuda_batch_uploader.h"
#include "kernels/resident/cuda_resident.h"
#include "tests/device_arrays.h"
#include "tests/executor/cuda/any_batch_image.h"
#include "tests/executor/cuda/expect_batch.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::AnyBatchImage;
using testing::Cases;
using testing::ExpectBatch;
using testing::ExpectWork;
using testing::IsMadeByTheStep;
using testing::Upload;

constexpr CudaAttentionShape kAttention = {.num_heads = 4,
                                           .num_kv_heads = 2,
                                           .head_dim = 16,
                                           .page_size = 4,
                                           .dtype = DType::kFloat32};

CudaStepLimits Limits() {
  return {.max_rows = AnyBatchImage::kMaxLines,
          .max_tokens = AnyBatchImage::kMaxTokens,
          .num_slots = AnyBatchImage::kMaxSlots,
          .table_stride = 8,
          .max_candidates = 2048,
          .max_eos_token_ids = 64,
          .max_edits = AnyBatchImage::kMaxEdits,
          .max_best_tokens = 1024,
          .max_items = 1024,
          .max_partials = 1024};
}

class CudaBatchMirrorGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, CudaDevice::Open(0));
    auto memory = CudaStepMemory::Create(Limits(), PageId{0}, 4);
    ASSERT_OK(memory.status());
    memory_ = std::make_unique<CudaStepMemory>(*std::move(memory));
    mirror_ = std::make_unique<CudaBatchUploader>(
        memory_->arrays(), memory_->limits(), kAttention, device_);
    auto stream = CudaStream::Create();
    ASSERT_OK(stream.status());
    stream_ = *std::move(stream);
  }

  CudaDelta Send(const CudaInputBatch& image) {
    CudaDelta delta(memory_->words());
    mirror_->Send(image, &delta);
    return delta;
  }
  void Apply(const CudaDelta& delta) {
    const auto segments = Upload(std::vector<CudaStagedWrite>(
        delta.segments().begin(), delta.segments().end()));
    const auto payload = Upload(
        std::vector<int>(delta.payload().begin(), delta.payload().end()));
    ASSERT_OK(CudaApplyStagedWrites(
        segments.data(), static_cast<int>(delta.segments().size()),
        payload.data(), memory_->words(), arrays().state.clock, stream_.get()));
    ASSERT_OK(CudaStatus(cudaStreamSynchronize(stream_.get()), "kernels"));
  }
  // As a step does whose device makes edits: lists anywhere in the room at the
  // end, and where they are.
  void WriteMadeEdits(const CudaInputBatch& image) const {
    const int64_t room = image.num_device_edits;
    Overwrite(arrays().edits + image.shape.max_edits - room, room);
    for (int line = 0; line < image.num_logits_rows(); ++line) {
      if (IsMadeByTheStep(image, line)) Overwrite(arrays().row_edits + line, 1);
    }
  }
  template <typename T>
  static void Overwrite(const T* array, size_t size) {
    ASSERT_EQ(cudaMemset(const_cast<T*>(array), 0xEE, size * sizeof(T)),
              cudaSuccess);
  }

  void ExpectOnDevice(const CudaInputBatch& image) const {
    const auto read = [](const void* from, void* to, size_t bytes) {
      ASSERT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost),
                cudaSuccess);
    };
    ExpectBatch(image, arrays(), read);
    EXPECT_EQ(mirror_->has_partials(),
              ExpectWork(image, arrays(), kAttention, Limits(), device_, read));
  }

  const CudaStepArrays& arrays() const { return memory_->arrays(); }

  std::unique_ptr<CudaStepMemory> memory_;
  std::unique_ptr<CudaBatchUploader> mirror_;

 private:
  CudaDevice device_;
  CudaStream stream_;
};

TEST_F(CudaBatchMirrorGpuTest,
       TheDeviceHasWhatAStepReadsAndNothingIsSentTwice) {
  AnyBatchImage any(7);
  for (int i = 0; i < Cases(400, 40); ++i) {
    SCOPED_TRACE(Concat("image ", i));
    const CudaInputBatch image = any.Make();
    Apply(Send(image));
    ExpectOnDevice(image);
    WriteMadeEdits(image);
    const CudaDelta again = Send(image);
    // Between steps with prompts the device writes over these.
    EXPECT_EQ(again.empty(), image.prompt_tokens.empty());
    if (HasFailure()) return;
  }
}

// Two beams that are asked for in this way, with little room for edits.
CudaInputBatch ImageOf(const CudaGroupRequest& request) {
  CudaInputBatch::Shape shape = AnyBatchImage::kShape;
  shape.max_edits = 100;
  CudaGroup group;
  group.num_slots = 2;
  group.position = 50;
  CudaInputBatch image(shape);
  image.AddBeams(group, request);
  return image;
}

// Lists of the host that reach into the room where the device makes its own.
TEST_F(CudaBatchMirrorGpuTest, ListsThatTheDeviceWroteOverAreSentAgain) {
  SelectionParams listed_rule, made_rule;
  listed_rule.processors.suppress_tokens.resize(
      AnyBatchImage::kShape.vocab_size);
  std::iota(listed_rule.processors.suppress_tokens.begin(),
            listed_rule.processors.suppress_tokens.end(), 0);
  made_rule.processors.repetition_penalty = 1.5f;
  const std::vector<std::vector<TokenId>> histories = {{1}, {2}};
  const CudaInputBatch listed =
      ImageOf({.rule = &listed_rule, .histories = histories});
  const CudaInputBatch made = ImageOf({.rule = &made_rule});
  ASSERT_EQ(listed.edits.size(), 80u);
  ASSERT_EQ(made.num_device_edits, 80);
  for (const CudaInputBatch* const image : {&listed, &made, &listed}) {
    Apply(Send(*image));
    ExpectOnDevice(*image);
    WriteMadeEdits(*image);
  }
}

TEST_F(CudaBatchMirrorGpuTest, AllOfItIsSentAgainWhereItWasLost) {
  AnyBatchImage any(8);
  for (int i = 0; i < Cases(50, 5); ++i) {
    SCOPED_TRACE(Concat("image ", i));
    const CudaInputBatch image = any.Make();
    Apply(Send(image));
    Overwrite(arrays().token_tables, AnyBatchImage::kMaxTokens);
    Overwrite(arrays().state.groups, AnyBatchImage::kMaxLines);
    mirror_->Forget();
    Apply(Send(image));
    ExpectOnDevice(image);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace espalier
