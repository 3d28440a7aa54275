#include "kernels/matmul/matmul.h"

namespace espalier::reference {

std::vector<double> MatMul(std::span<const float> x, std::span<const float> w,
                           int num_cols) {
  const size_t num_rows = w.size() / num_cols;
  const size_t n = x.size() / num_cols;
  std::vector<double> y(n * num_rows);
  for (size_t i = 0; i < n; ++i) {
    for (size_t row = 0; row < num_rows; ++row) {
      double sum = 0;
      for (int k = 0; k < num_cols; ++k) {
        sum += double{x[i * num_cols + k]} * double{w[row * num_cols + k]};
      }
      y[i * num_rows + row] = sum;
    }
  }
  return y;
}

}  // namespace espalier::reference
