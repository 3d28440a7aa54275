// The small random models of each family and what transformers makes of them
// (tests/data/families/, made by tools/make_family_models.py, and those of
// CTranslate2 by tools/make_ctranslate2_models.py).
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/source_tree.h"

namespace espalier::testing {

inline std::string FamilyPath(const std::string& model) {
  return SourcePath("tests/data/families/" + model);
}

// Their names, in order.
inline std::vector<std::string> FamilyModels() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(FamilyPath(""))) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline bool HasEncoder(const std::string& model) {
  if (std::filesystem::exists(FamilyPath(model) + "/model.bin")) return true;
  const std::string config =
      *ReadFile(FamilyPath(model) + "/config.json", 1 << 20);
  return config.find("\"is_encoder_decoder\": true") != std::string::npos;
}

// Models without an encoder that run on a CUDA device.
inline std::vector<std::string> CudaDecoderFamilyModels() {
  std::vector<std::string> names = FamilyModels();
  std::erase_if(names, HasEncoder);
  std::erase(names, "opt_projected");
  return names;
}

// Models with an encoder.
inline std::vector<std::string> EncoderFamilyModels() {
  std::vector<std::string> names = FamilyModels();
  std::erase_if(names,
                [](const std::string& name) { return !HasEncoder(name); });
  return names;
}

}  // namespace espalier::testing
