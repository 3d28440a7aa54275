#include "model/embedding_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/load_as_float.h"

namespace espalier {
namespace {

TEST(EmbeddingTableTest, RowsComeBackWidened) {
  const int num_rows = 7, num_cols = 19;
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const size_t element_bytes = NumBytes(dtype);
    // One byte further than aligned.
    std::vector<std::byte> bytes(1 + num_rows * num_cols * element_bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i * 37 % 59);
    }
    const auto rows = std::span(bytes).subspan(1);
    const EmbeddingTable table(rows, dtype, num_cols);
    std::vector<float> row(num_cols);
    for (int r = 0; r < num_rows; ++r) {
      table.CopyRow(r, row);
      for (int k = 0; k < num_cols; ++k) {
        const size_t element = size_t(r) * num_cols + k;
        EXPECT_EQ(row[k], LoadAsFloat(&rows[element * element_bytes], dtype))
            << "row " << r << ", column " << k;
      }
    }
  }
}

}  // namespace
}  // namespace espalier
