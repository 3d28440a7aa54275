// CudaConstraints: the tables of requests' constraints in device memory. They
// are copied there before the first step of a request with the constraint. When
// a new constraint comes, those whose constraint is gone are freed, and if
// there is no room those that were needed least recently. Requests that may
// have any item of a catalogue share tables, which are gone with the catalogue.
//
// Thread safety: plain state, of one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/constraint_tables.h"
#include "base/cuda_resources.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_item_tries.h"
#include "kernels/constrain/cuda_constraint_tables.h"
#include "kernels/constrain/cuda_item_tables.h"

namespace espalier {

class CudaConstraints {
 public:
  // `max_constraints` of them in a step, of a model with `vocab_size` tokens.
  // `stream` runs the steps.
  // Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaConstraints>> Create(
      int max_constraints, int vocab_size, cudaStream_t stream);

  // Copies tables that the plan's selections and continuations need and that
  // are not there.
  // Tables that it does not need may go; then it waits for the steps so far.
  // If copying fails, Find says so.
  void Place(const StepPlan& plan);

  // Returns the index in on_device() of the constraint of a selection, or
  // continuation, of the last placed plan; -1 if its params have none.
  // Errors: of copying its tables.
  absl::StatusOr<int> Find(const SelectionParams& params) const;

  const CudaConstraint* on_device() const { return on_device_.data(); }
  int64_t num_bytes() const;

 private:
  // Tables of texts or of items, the constraint that they are of, and an array
  // of them.
  struct Entry {
    std::weak_ptr<const void> owner;  // the catalogue, if requests share it
    const void* array = nullptr;
    // If requests share it:
    std::vector<TokenId> end_ids = {};
    int32_t min_length = 0;
    CudaItemTables items = {};
    const uint8_t* first_bytes = nullptr;  // texts of its tokens
    const uint8_t* inside_bytes = nullptr;
    std::shared_ptr<const CudaTokenTexts> first = nullptr;
    std::shared_ptr<const CudaTokenTexts> inside = nullptr;
    CudaConstraintTables tables = {};
    int index = 0;
    int64_t last_plan = 0;  // that needed it
  };
  struct Failure {
    const SelectionParams* params = nullptr;
    absl::Status status;
  };

  CudaConstraints(int max_constraints, int vocab_size, cudaStream_t stream)
      : max_constraints_(max_constraints),
        vocab_size_(vocab_size),
        stream_(stream) {}

  // Returns null if there is none.
  Entry* FindEntry(const SelectionParams& params) const;
  absl::Status Add(const SelectionParams& params);
  absl::Status AddTexts(const ConstraintTables& tables, Entry* entry);
  absl::Status AddItems(const SelectionParams& params, Entry* entry);
  // Drops tables of constraints that are gone and, if there are too many, those
  // that were needed least recently.
  absl::Status MakeRoom();
  absl::StatusOr<std::shared_ptr<const CudaTokenTexts>> TextsOf(
      const TokenTexts& texts) const;
  int FreeIndex() const;

  const int max_constraints_;
  const int vocab_size_;
  const cudaStream_t stream_;
  DeviceBuffer<CudaConstraint> on_device_;  // [max_constraints]
  std::vector<std::unique_ptr<Entry>> entries_;
  CudaItemTries tries_;
  std::vector<Failure> failures_;  // for the last placed plan
  int64_t num_plans_ = 0;
};

}  // namespace espalier
