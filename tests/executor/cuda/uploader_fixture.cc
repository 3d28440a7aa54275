#include "tests/executor/cuda/uploader_fixture.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/executor/cuda/expect_batch.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

constexpr CudaAttentionShape kUploadedAttention = {.num_heads = 4,
                                                   .num_kv_heads = 2,
                                                   .head_dim = 16,
                                                   .page_size = 4,
                                                   .dtype = DType::kFloat32};

// Returns a batch of two beams for `request`, with little room for edits.
CudaInputBatch BatchOfTwoBeams(const CudaGroupRequest& request) {
  CudaInputBatch::Shape shape = AnyInputBatch::kShape;
  shape.max_edits = 100;
  CudaGroup group;
  group.num_slots = 2;
  group.position = 50;
  CudaInputBatch batch(shape);
  batch.AddBeams(group, request);
  return batch;
}

}  // namespace

void UploaderFixture::Create(const CudaDevice& device) {
  device_ = device;
  auto memory = CudaStepMemory::Create(kLimits, PageId{0}, 4);
  ASSERT_OK(memory.status());
  memory_ = std::make_unique<CudaStepMemory>(*std::move(memory));
  uploader_ = std::make_unique<CudaBatchUploader>(arrays(), kLimits,
                                                  kUploadedAttention, device);
}

CudaDelta UploaderFixture::Send(const CudaInputBatch& batch) {
  CudaDelta delta(memory_->words());
  uploader_->Send(batch, &delta);
  Apply(delta);
  return delta;
}

void UploaderFixture::WriteDeviceEdits(const CudaInputBatch& batch) {
  const int64_t room = batch.num_device_edits;
  Overwrite(arrays().edits + batch.shape.max_edits - room,
            room * sizeof(TokenEdit));
  for (int row = 0; row < batch.num_logits_rows(); ++row) {
    if (!IsMadeByTheStep(batch, row)) continue;
    Overwrite(arrays().row_edits + row, sizeof(CudaRowEdits));
  }
}

void UploaderFixture::ExpectOnDevice(const CudaInputBatch& batch) const {
  const auto read = [this](const void* from, void* to, size_t num_bytes) {
    Read(from, to, num_bytes);
  };
  ExpectBatch(batch, arrays(), read);
  ExpectWork(batch, arrays(), kUploadedAttention, kLimits, device_, read,
             uploader_->attention().has_partials(),
             uploader_->cross_attention().has_partials());
}

void UploaderFixture::ExpectBatchesAreSentOnce(int num_batches) {
  AnyInputBatch any(7);
  for (int i = 0; i < num_batches; ++i) {
    SCOPED_TRACE(Concat("batch ", i));
    const CudaInputBatch batch = any.Make();
    Send(batch);
    ExpectOnDevice(batch);
    WriteDeviceEdits(batch);
    // Between steps with prompts the device writes over these.
    EXPECT_EQ(Send(batch).empty(), batch.prompt_tokens.empty());
    if (HasFailure()) return;
  }
}

void UploaderFixture::ExpectOverwrittenEditsAreSentAgain() {
  SelectionParams of_host, of_device;
  std::vector<TokenId> every_token(AnyInputBatch::kShape.vocab_size);
  std::iota(every_token.begin(), every_token.end(), 0);
  of_host.processors.suppress_tokens = std::move(every_token);
  of_host.processors.no_repeat_ngram_size = 9;  // it needs histories
  of_device.processors.repetition_penalty = 1.5f;
  const std::vector<std::vector<TokenId>> histories = {{1}, {2}};
  const CudaInputBatch listed =
      BatchOfTwoBeams({.params = &of_host, .histories = histories});
  const CudaInputBatch made = BatchOfTwoBeams({.params = &of_device});
  ASSERT_EQ(listed.edits.size(), 80u);
  ASSERT_EQ(made.num_device_edits, 80);
  for (const CudaInputBatch* const batch : {&listed, &made, &listed}) {
    Send(*batch);
    ExpectOnDevice(*batch);
    WriteDeviceEdits(*batch);
  }
}

void UploaderFixture::ExpectLostArraysAreSentAgain(int num_batches) {
  AnyInputBatch any(8);
  for (int i = 0; i < num_batches; ++i) {
    SCOPED_TRACE(Concat("batch ", i));
    const CudaInputBatch batch = any.Make();
    Send(batch);
    const auto overwrite = [&]<typename T>(const CudaArrayInfo& info,
                                           const T* array) {
      Overwrite(array, info.max_size(kLimits) * sizeof(T));
    };
    ForEachBatchArray(overwrite, arrays());
    ForEachAttentionArray(overwrite, arrays());
    ForEachAttentionArray(overwrite, arrays().cross_attention);
    uploader_->Forget();
    Send(batch);
    ExpectOnDevice(batch);
    if (HasFailure()) return;
  }
}

}  // namespace espalier::testing
