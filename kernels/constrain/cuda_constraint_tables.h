// Copies of a constraint's tables in device memory, with what kernels note of
// its states. Constraints of a model share the texts of its tokens, a megabyte
// or two; an automaton is small beside that, mostly.
//
// Move-only owners, of one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/constraint_tables.h"
#include "base/cuda_resources.h"

namespace espalier {

// A constraint as kernels have it, in device memory.
struct CudaConstraint {
  ConstraintTables tables;  // with device pointers; of items there is no more
  uint32_t id = 0;          // with stacks: no other one of the process has it
  // The rest is of texts without stacks.
  // With room for this many tokens, any token is legal, or continues, that does
  // so with any room.
  int32_t max_need = 0;
  // By state, [num_states + 2], written by kernels:
  // needs  the least room for which that holds in the state; -1: not known yet
  // masks  the mask of its tokens with such room: the epoch of CudaMaskCache in
  //        the upper half, in which it is valid, and its place
  int32_t* needs = nullptr;
  unsigned long long* masks = nullptr;
};

class CudaTokenTexts {
 public:
  // Copies the texts of a vocabulary. Returns when they are there.
  // Errors: kResourceExhausted; else as base/cuda.h.
  static absl::StatusOr<CudaTokenTexts> Create(const TokenTexts& texts,
                                               int vocab_size);

  // In device memory.
  TokenTexts texts() const;
  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes());
  }

 private:
  DeviceBuffer<int32_t> words_;  // indptr, then the bytes
  int vocab_size_ = 0;
};

class CudaConstraintTables {
 public:
  // Copies the tables; `inside` and `first` are copies of their texts. Without
  // tables.first, `first` is null.
  // Errors: kResourceExhausted; else as base/cuda.h.
  static absl::StatusOr<CudaConstraintTables> Create(
      const ConstraintTables& tables,
      std::shared_ptr<const CudaTokenTexts> inside,
      std::shared_ptr<const CudaTokenTexts> first);

  const CudaConstraint& constraint() const { return constraint_; }
  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes());
  }

 private:
  static absl::StatusOr<CudaConstraintTables> CreateWithStacks(
      const ConstraintTables& tables,
      std::shared_ptr<const CudaTokenTexts> inside,
      std::shared_ptr<const CudaTokenTexts> first);

  std::shared_ptr<const CudaTokenTexts> inside_;
  std::shared_ptr<const CudaTokenTexts> first_;
  DeviceBuffer<int32_t> words_;
  CudaConstraint constraint_;
};

}  // namespace espalier
