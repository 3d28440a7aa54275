// UploaderFixture: what CudaBatchUploader promises after any other batches, in
// tests that run twice: on a device, and with host memory in its place. A
// subclass says how device memory is reached; each test calls one of Expect...
// below.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

#include "executor/cuda/batch/cuda_batch_uploader.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "tests/executor/cuda/any_input_batch.h"

namespace espalier::testing {

class UploaderFixture : public ::testing::Test {
 protected:
  static constexpr CudaStepLimits kLimits = {
      .max_rows = AnyInputBatch::kMaxLogitsRows,
      .max_tokens = AnyInputBatch::kMaxTokens,
      .num_slots = AnyInputBatch::kMaxSlots,
      .table_stride = 8,
      .source_stride = 8,
      .max_candidates = 2048,
      .max_eos_token_ids = 64,
      .max_edits = AnyInputBatch::kMaxEdits,
      .max_best_tokens = 1024,
      .max_items = 1024,
      .max_partials = 1024};

  // Operations on device memory.
  virtual void Apply(const CudaDelta& delta) = 0;
  virtual void Overwrite(const void* array, size_t num_bytes) = 0;
  virtual void Read(const void* from, void* to, size_t num_bytes) const = 0;

  // First of all.
  void Create(const CudaDevice& device);

  // Checks that the device has all arrays that a step reads, and that nothing
  // is sent twice.
  void ExpectBatchesAreSentOnce(int num_batches);
  // Lists of the host that reach into the room where the device makes its own.
  void ExpectOverwrittenEditsAreSentAgain();
  // After Forget.
  void ExpectLostArraysAreSentAgain(int num_batches);

  const CudaStepMemory& memory() const { return *memory_; }
  const CudaStepArrays& arrays() const { return memory_->arrays(); }

 private:
  CudaDelta Send(const CudaInputBatch& batch);
  // Writes edits as a device does: lists anywhere in the space at the end, and
  // their positions.
  void WriteDeviceEdits(const CudaInputBatch& batch);
  void ExpectOnDevice(const CudaInputBatch& batch) const;

  CudaDevice device_;
  std::unique_ptr<CudaStepMemory> memory_;
  std::unique_ptr<CudaBatchUploader> uploader_;
};

}  // namespace espalier::testing
