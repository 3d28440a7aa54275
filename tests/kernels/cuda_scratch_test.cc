// Scratch bounds of the device's choices: the scratch of a step's limits
// suffices for every smaller step, even if other kernels are chosen for it.
// CudaGraphRunner's single allocation relies on this. Needs no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "kernels/gumbel_topk/cuda_gumbel_topk.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select.h"
#include "kernels/verify/cuda_verify.h"

namespace espalier {
namespace {

// Limits that size the launches of a step.
struct Bounds {
  int num_rows = 1;
  int max_groups = 1;
  int max_candidates = 1;
  int max_total_candidates = 1;
  bool has_edits = false;
};

class AnyBounds {
 public:
  // Returns limits of any size, small ones as often as large ones.
  Bounds Largest() {
    Bounds bounds = {.num_rows = UpTo(kMaxRows),
                     .max_candidates = UpTo(kMaxCandidates),
                     .has_edits = random_() % 2 == 0};
    bounds.max_groups = UpTo(bounds.num_rows);
    bounds.max_total_candidates = UpTo(MostCandidates(bounds));
    return bounds;
  }
  // None of it is more.
  Bounds Within(const Bounds& largest) {
    Bounds bounds = {.num_rows = UpTo(largest.num_rows),
                     .max_groups = UpTo(largest.max_groups),
                     .max_candidates = UpTo(largest.max_candidates),
                     .has_edits = largest.has_edits && random_() % 2 == 0};
    bounds.max_total_candidates =
        std::min(UpTo(largest.max_total_candidates), MostCandidates(bounds));
    return bounds;
  }

 private:
  static constexpr int kMaxRows = 4096;
  static constexpr int kMaxCandidates = 10000;

  static int MostCandidates(const Bounds& bounds) {
    return static_cast<int>(std::min<int64_t>(
        int64_t{bounds.max_groups} * bounds.max_candidates, 1 << 20));
  }
  int UpTo(int most) {
    const int reach = random_() % 2 == 0 ? most : std::min(most, 100);
    return 1 + static_cast<int>(random_() % reach);
  }

  std::mt19937 random_{20261120};
};

CudaSelectInputs SelectInputs(const Bounds& bounds, int vocab_size) {
  static constexpr CudaRowEdits kEdits;
  return {.num_rows = bounds.num_rows,
          .vocab_size = vocab_size,
          .max_groups = bounds.max_groups,
          .max_candidates = bounds.max_candidates,
          .max_total_candidates = bounds.max_total_candidates,
          .row_edits = bounds.has_edits ? &kEdits : nullptr};
}

CudaSampleInputs SampleInputs(const Bounds& bounds, int vocab_size) {
  const CudaSelectInputs select = SelectInputs(bounds, vocab_size);
  return {.num_rows = select.num_rows,
          .vocab_size = vocab_size,
          .max_draws = bounds.max_groups,
          .row_edits = select.row_edits};
}

// Calls `law` with bounds, smaller ones and a vocabulary.
template <typename Law>
void ForManyBounds(const Law& law) {
  AnyBounds any;
  for (const int vocab_size : {1, 1000, 1025, 32000, 151936}) {
    for (int i = 0; i < 2000; ++i) {
      const Bounds largest = any.Largest();
      const Bounds smaller = any.Within(largest);
      ASSERT_NO_FATAL_FAILURE(law(largest, smaller, vocab_size))
          << smaller.num_rows << " rows, " << smaller.max_groups
          << " groups of up to " << smaller.max_candidates << ", together "
          << smaller.max_total_candidates << ", within " << largest.num_rows
          << ", " << largest.max_groups << ", " << largest.max_candidates
          << ", " << largest.max_total_candidates;
    }
  }
}

TEST(CudaScratchTest, OfSelectionCoversWhatIsSmaller) {
  ForManyBounds([](const Bounds& largest, const Bounds& smaller, int vocab) {
    ASSERT_GE(CudaSelectScratchBytes(SelectInputs(largest, vocab)),
              CudaSelectScratchBytes(SelectInputs(smaller, vocab)));
  });
}

TEST(CudaScratchTest, OfSamplingCoversWhatIsSmaller) {
  ForManyBounds([](const Bounds& largest, const Bounds& smaller, int vocab) {
    ASSERT_GE(CudaSampleScratchBytes(SampleInputs(largest, vocab)),
              CudaSampleScratchBytes(SampleInputs(smaller, vocab)));
  });
}

TEST(CudaScratchTest, OfVerificationCoversWhatIsSmaller) {
  const auto inputs_of = [](const Bounds& bounds, int vocab_size) {
    const CudaSelectInputs select = SelectInputs(bounds, vocab_size);
    return CudaVerifyInputs{.num_rows = select.num_rows,
                            .vocab_size = vocab_size,
                            .max_sequences = bounds.max_groups,
                            .row_edits = select.row_edits};
  };
  ForManyBounds([&](const Bounds& largest, const Bounds& smaller, int vocab) {
    ASSERT_GE(CudaVerifyScratchBytes(inputs_of(largest, vocab)),
              CudaVerifyScratchBytes(inputs_of(smaller, vocab)));
  });
}

TEST(CudaScratchTest, OfGumbelTopKCoversWhatIsSmaller) {
  ForManyBounds([](const Bounds& largest, const Bounds& smaller, int vocab) {
    ASSERT_GE(
        CudaGumbelTopKScratchBytes({.select = SelectInputs(largest, vocab)}),
        CudaGumbelTopKScratchBytes({.select = SelectInputs(smaller, vocab)}));
  });
}

}  // namespace
}  // namespace espalier
