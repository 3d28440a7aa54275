#include "model/layer_parts.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {

int SizeOf(const TransformerConfig& config, const LayerConfig& layer,
           LayerDim dim) {
  switch (dim) {
    case LayerDim::kHidden:
      return config.hidden_size;
    case LayerDim::kQueries:
      return config.q_size();
    case LayerDim::kKeys:
    case LayerDim::kValues:
      return config.kv_size();
    case LayerDim::kHead:
      return config.head_dim;
    case LayerDim::kIntermediate:
      return layer.intermediate_size;
  }
  CHECK(false) << static_cast<int>(dim);
  return 0;
}

bool Has(const TransformerConfig& config, const LayerConfig& layer,
         LayerFeature feature) {
  switch (feature) {
    case LayerFeature::kAlways:
      return true;
    case LayerFeature::kCrossAttention:
      return layer.has_cross_attention;
    case LayerFeature::kGate:
      return config.has_gate;
    case LayerFeature::kQkNorms:
      return config.has_qk_norms;
    case LayerFeature::kPostNorms:
      return config.has_post_norms;
  }
  CHECK(false) << static_cast<int>(feature);
  return false;
}

const MatrixTensor& FirstMember(MatrixPart matrix) {
  return *std::ranges::find(kMatrixTensors, matrix, &MatrixTensor::matrix);
}

}  // namespace espalier
