// FeatureMatrix: what an encoder reads that does not read tokens, such as the
// log-mel frames of speech.
//
// Thread safety: a value; immutable where it is shared.
#pragma once

#include <vector>

namespace espalier {

struct FeatureShape {
  int num_rows = 0;  // in the order of time
  int num_cols = 0;  // features of a row

  friend bool operator==(const FeatureShape&, const FeatureShape&) = default;
};

struct FeatureMatrix {
  FeatureShape shape;
  std::vector<float> values;  // [num_rows, num_cols]
};

}  // namespace espalier
