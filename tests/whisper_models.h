// The small random Whisper models and what transformers makes of them
// (tests/data/speech/, made by tools/make_whisper_models.py).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/feature_matrix.h"
#include "base/status.h"
#include "exec_request/encoder_input.h"
#include "model/safetensors.h"
#include "tests/model/stored_values.h"
#include "tests/source_tree.h"

namespace espalier::testing {

inline const std::vector<std::string>& WhisperModels() {
  static const std::vector<std::string> names = {"whisper", "whisper_odd"};
  return names;
}

inline std::string WhisperPath(const std::string& model) {
  return SourcePath("tests/data/speech/" + model);
}

// features.N of logits.safetensors.
inline std::shared_ptr<const FeatureMatrix> StoredFeatures(
    const SafetensorsFile& file, int number) {
  const std::string name = Concat("features.", number);
  const std::vector<int64_t>& shape = (*file.Find(name))->shape;
  return std::make_shared<const FeatureMatrix>(
      FeatureMatrix{.shape = {.num_rows = static_cast<int>(shape[0]),
                              .num_cols = static_cast<int>(shape[1])},
                    .values = StoredValues<float>(file, name)});
}

// Their encoders have half as many positions as there are frames.
inline std::shared_ptr<const EncoderInput> InputOf(
    std::shared_ptr<const FeatureMatrix> features) {
  const int length = features->shape.num_rows / 2;
  return std::make_shared<const EncoderInput>(std::move(features), length);
}

}  // namespace espalier::testing
