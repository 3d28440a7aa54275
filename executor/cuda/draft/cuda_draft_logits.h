// CudaDraftLogitsPool: device memory for the rows of logits that drafts were
// sampled from, kept until verification has read them. A draft's rows are
// contiguous. They return to the pool with the last copy of their DraftLogits,
// whose owner waits for the device first.
//
//   std::optional<CudaDraftLogitsPool::Rows> rows = pool.Take(num_tokens);
//   ... kernels write rows->logits, from pool.data() + first * vocab_size on
//
// Thread safety: rows may be taken and released on any thread. They may outlive
// the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"
#include "exec_request/plan_drafts.h"

namespace espalier {

class CudaDraftLogitsPool {
 public:
  struct Rows {
    int first = 0;
    DraftLogits logits = {};
  };

  // Allocates on the thread's current device.
  // Errors: kResourceExhausted.
  static absl::StatusOr<CudaDraftLogitsPool> Create(int num_rows,
                                                    int vocab_size,
                                                    const CudaDevice& device);

  // Takes contiguous rows; nullopt if the pool has no free range of this size.
  std::optional<Rows> Take(int num_rows);
  // [num_rows, vocab_size]  f32  device
  float* data() const;
  int num_free() const;

 private:
  struct Memory;
  explicit CudaDraftLogitsPool(std::shared_ptr<Memory> memory)
      : memory_(std::move(memory)) {}

  std::shared_ptr<Memory> memory_;
};

}  // namespace espalier
