// Memory limits, and their error messages.
#include "base/cuda_memory.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "executor/cuda/batch/cuda_step_limits.h"
#include "executor/cuda/step/cuda_step_shape.h"
#include "kernels/select/cuda_select.h"
#include "model/cuda/cuda_transformer.h"

namespace espalier {
namespace {

int SelectionRowsOf(int max_tokens, int vocab_size, int max_logits = 0) {
  CudaTransformerOptions options;
  options.max_tokens = max_tokens;
  options.max_logits = max_logits;
  return WithBounds(options, vocab_size).max_logits;
}

// 4.2 GB and 10 GB if every token of a step had logits; the latter are more
// than selection takes.
TEST(CudaTransformerOptionsTest, LogitsTakeAGibibyteUnlessMoreAreAskedFor) {
  EXPECT_EQ(SelectionRowsOf(8192, 128256), 2092);
  EXPECT_EQ(SelectionRowsOf(16384, 151936), 1766);
  EXPECT_LE(int64_t{SelectionRowsOf(16384, 151936)} * 151936, kMaxCudaLogits);
  EXPECT_EQ(SelectionRowsOf(2048, 6000), 2048);
  EXPECT_EQ(SelectionRowsOf(128, 151936), 128);
  EXPECT_EQ(SelectionRowsOf(2048, 1 << 22), 256);
  EXPECT_EQ(SelectionRowsOf(8192, 128256, 5000), 5000);
  EXPECT_EQ(SelectionRowsOf(65536, 4096), kMaxCudaLogitsRows);
}

TEST(CudaStepLimitsTest, TablesAreOfSlotsAndAFewRowsMore) {
  const CudaStepLimits limits =
      StepLimitsOf({.vocab_size = 128256,
                    .max_context = 131072,
                    .eos_token_ids = {2},
                    .num_pages = 100000},
                   {.max_tokens = 8192, .max_logits = 2092});
  EXPECT_EQ(limits.table_stride, 8192);
  EXPECT_EQ(limits.num_slots, 4184);
  EXPECT_EQ(limits.num_row_tables(), 64);
  const CudaStepScratch scratch(limits, 128256);
  EXPECT_EQ(scratch.logits_bytes, size_t{2092} * 128256 * 4);
  EXPECT_GT(scratch.gumbel_bytes, scratch.logits_bytes);
  EXPECT_LT(scratch.choice_bytes, scratch.logits_bytes / 8);
}

TEST(FormatMemoryTest, LargestFirstAndNothingThatIsNotThere) {
  const int64_t mib = 1 << 20;
  EXPECT_EQ(FormatMemory({{"weights", 17 * mib},
                          {"logits", 1536 * mib},
                          {"drawn beams", 0},
                          {"answers", mib / 2, true}}),
            "device memory 1.52 GiB: logits 1.50 GiB, weights 17.0 MiB; pinned "
            "memory 0.5 MiB: answers 0.5 MiB");
}

}  // namespace
}  // namespace espalier
