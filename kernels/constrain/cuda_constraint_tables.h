// Copies of a constraint's tables in device memory. Constraints of a model
// share the texts of its tokens, a megabyte or two; an automaton is small
// beside that, mostly.
//
// Move-only owners, of one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/constraint_tables.h"
#include "base/cuda_resources.h"

namespace espalier {

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

  // In device memory.
  const ConstraintTables& tables() const { return tables_; }
  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes());
  }

 private:
  std::shared_ptr<const CudaTokenTexts> inside_;
  std::shared_ptr<const CudaTokenTexts> first_;
  DeviceBuffer<int32_t> words_;
  ConstraintTables tables_;
};

}  // namespace espalier
