// CTranslate2Variables: reads options and tensors of a CTranslate2File, and
// finds variables that were not read: they change the computation in a way that
// the reader does not know.
//
// Errors are kInvalidArgument naming the variable and the value.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ctranslate2/ctranslate2_file.h"

namespace espalier {

class CTranslate2Variables {
 public:
  // `file` outlives this.
  explicit CTranslate2Variables(const CTranslate2File& file) : file_(file) {}

  const CTranslate2File& file() const { return file_; }
  bool Has(const std::string& name) const {
    return file_.Find(name) != nullptr;
  }

  // A variable of any type.
  absl::StatusOr<const StoredTensor*> Any(const std::string& name);

  // An option: an integer or a float32 without dimensions.
  absl::StatusOr<double> Number(const std::string& name);
  // nullopt if it is missing.
  absl::StatusOr<std::optional<double>> NumberIfThere(const std::string& name);

  // A tensor of F32, F16 or BF16.
  absl::StatusOr<StoredTensor> Floats(const std::string& name,
                                      const std::vector<int64_t>& shape);

  // A tensor of F32, F16 or BF16, or one of I8 with a scale for each row.
  struct Matrix {
    StoredTensor weight;  // [num_rows, num_cols], of a convolution with taps
    // [num_rows], F32; the weight is the integer divided by it.
    std::optional<StoredTensor> scale;
  };
  absl::StatusOr<Matrix> MatrixOf(const std::string& name,
                                  const std::vector<int64_t>& shape);

  // Errors: naming the first variable or alias that was not read.
  absl::Status CheckAllAreUsed() const;

 private:
  const CTranslate2File& file_;
  std::set<std::string> used_;
};

}  // namespace espalier
