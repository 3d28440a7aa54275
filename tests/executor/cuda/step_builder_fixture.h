// StepBuilderFixture: a CudaStepBuilder and the memory that its steps are in,
// for a model that does not exist on an H100 that does not either: a dry run
// (tests/cuda_dry_run.h). Of the limits' pages the last is the null page, and
// a table of theirs holds the longest context.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "executor/cuda/step/cuda_step_builder.h"
#include "tests/cuda_dry_run.h"
#include "tests/executor/plan_source.h"
#include "tests/status_matchers.h"

namespace espalier::testing {

// Defaults of most tests.
inline constexpr int kBuilderPageSize = 16;
inline constexpr CudaStepLimits kBuilderLimits = {.max_rows = 128,
                                                  .max_tokens = 512,
                                                  .num_slots = 256,
                                                  .table_stride = 4,
                                                  .num_pages = 1000,
                                                  .max_candidates = 2000,
                                                  .max_eos_token_ids = 128,
                                                  .max_best_tokens = 512,
                                                  .max_items = 2048,
                                                  .max_partials = 2048};

class StepBuilderFixture : public ::testing::Test {
 protected:
  static constexpr int kVocabSize = 1000;

  StepBuilderFixture(const CudaStepLimits& limits, int page_size)
      : source_(page_size), limits_(limits), page_size_(page_size) {}

  void SetUp() override {
    BeginDryRun(90);
    const int num_pages = limits_.num_pages - 1;
    auto memory =
        CudaStepMemory::Create(limits_, PageId{num_pages}, page_size_);
    ASSERT_OK(memory.status());
    memory_ = std::make_unique<CudaStepMemory>(*std::move(memory));
    CudaDevice device;
    device.num_sms = 132;
    device.compute_capability = 90;
    builder_ = std::make_unique<CudaStepBuilder>(
        ModelDescription{.vocab_size = kVocabSize,
                         .max_context = limits_.table_stride * page_size_,
                         .num_pages = num_pages,
                         .page_size = page_size_},
        CudaAttentionShape{.num_heads = 4, .num_kv_heads = 2, .head_dim = 64},
        memory_.get(), device);
  }

  PlanSource source_;
  std::unique_ptr<CudaStepMemory> memory_;
  std::unique_ptr<CudaStepBuilder> builder_;

 private:
  const CudaStepLimits limits_;
  const int page_size_;
};

}  // namespace espalier::testing
