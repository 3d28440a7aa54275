#include "kernels/verify/cuda_verify_layout.h"

#include <cstdint>

namespace espalier {

CudaVerifyLayout::CudaVerifyLayout(int num_rows, int vocab_size,
                                   int max_sequences, bool has_edits)
    : of_sample(num_rows, vocab_size, has_edits) {
  verdicts = layout.Add("verdicts", num_rows, kVerdictBytes);
  tile_masses =
      layout.Add("residual masses", size_t(max_sequences) * of_sample.num_tiles,
                 sizeof(uint64_t));
  arrivals = layout.Add("arrivals", max_sequences, sizeof(unsigned));
  sample = layout.Add("tiles of rows", of_sample.layout.bytes(), 1);
}

}  // namespace espalier
