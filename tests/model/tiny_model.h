// Tiny random models for tests: a model directory as plain values, which a
// test can damage before it is written.
//
//   ModelFiles files = FilesOf(MakeTinyModel({.num_layers = 1}, /*seed=*/1));
//   files["config.json"] = "{";
//   const TempDirectory directory(files);
//   TransformerModel::Load(directory.path(), {}, &pool);
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {

struct TinyTensor {
  std::string dtype = "F32";
  std::vector<int64_t> shape;
  std::vector<float> values;  // such as `dtype` holds exactly
};

struct TinyShape {
  int vocab_size = 23;
  int hidden_size = 24;
  int intermediate_size = 40;
  int num_layers = 2;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 16;
  int max_context = 128;
  bool tied = false;
  std::string dtype = "F32";
};

struct TinyModel {
  json::object config;
  json::object generation_config;
  std::map<std::string, TinyTensor> tensors;
};

TinyModel MakeTinyModel(const TinyShape& shape, int seed);

// A safetensors file: header and data apart, or together.
json::object SafetensorsHeader(
    const std::map<std::string, TinyTensor>& tensors);
std::string SafetensorsData(const std::map<std::string, TinyTensor>& tensors);
std::string SafetensorsFileOf(const std::string& header,
                              const std::string& data);

// File names and contents of a model directory. With several shards the
// tensors are dealt out in turn, and an index says which is where.
using ModelFiles = std::map<std::string, std::string>;
ModelFiles FilesOf(const TinyModel& model, int num_shards = 1);

// A directory of its own with these files, gone when this dies.
class TempDirectory : public ScratchDirectory {
 public:
  explicit TempDirectory(const ModelFiles& files) {
    for (const auto& [name, bytes] : files) Write(name, bytes);
  }
};

}  // namespace espalier::testing
