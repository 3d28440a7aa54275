#include "tests/model/tiny_model.h"

#include <stdlib.h>  // mkdtemp

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/check.h"
#include "base/status.h"
#include "kernels/matmul/fp8.h"

namespace espalier::testing {
namespace {

// The number of `dtype` near `value`, as the bits in the file.
uint32_t Encode(float value, const std::string& dtype) {
  if (dtype == "F16") return std::bit_cast<uint16_t>(_Float16(value));
  if (dtype == "F8_E4M3") return Fp8FromFloat(value);
  const auto bits = std::bit_cast<uint32_t>(value);
  return dtype == "BF16" ? bits >> 16 : bits;
}

// The nearest number that `dtype` holds.
float Round(float value, const std::string& dtype) {
  if (dtype == "F16") return static_cast<float>(_Float16(value));
  if (dtype == "BF16") {
    // Dekker's split, which leaves the upper 8 of 24 bits. Masking the lower
    // bits off instead is optimised away here by GCC 12.2.
    const float scaled = value * 0x1.0001p16f;
    return scaled - (scaled - value);
  }
  return value;
}

int NumBytes(const std::string& dtype) {
  return dtype == "F32" ? 4 : dtype == "F8_E4M3" ? 1 : 2;
}

TinyTensor RandomTensor(const std::vector<int64_t>& shape, float mean,
                        float deviation, const std::string& dtype,
                        std::mt19937& random) {
  std::normal_distribution<float> normal(mean, deviation);
  TinyTensor tensor = {dtype, shape, {}};
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    tensor.values.push_back(Round(normal(random), dtype));
  }
  return tensor;
}

json::object ConfigOf(const TinyShape& shape) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", shape.vocab_size},
          {"hidden_size", shape.hidden_size},
          {"intermediate_size", shape.intermediate_size},
          {"num_hidden_layers", shape.num_layers},
          {"num_attention_heads", shape.num_heads},
          {"num_key_value_heads", shape.num_kv_heads},
          {"head_dim", shape.head_dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", shape.max_context},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 100.0},
          {"tie_word_embeddings", shape.tied},
          {"eos_token_id", 2}};
}

}  // namespace

TinyModel MakeTinyModel(const TinyShape& shape, int seed) {
  std::mt19937 random(seed);
  TinyModel model = {ConfigOf(shape), {{"eos_token_id", {2, 5}}}, {}};
  const int64_t hidden = shape.hidden_size;
  const int64_t q_size = int64_t{shape.num_heads} * shape.head_dim;
  const int64_t kv_size = int64_t{shape.num_kv_heads} * shape.head_dim;
  auto add_norm = [&](const std::string& name) {
    model.tensors[name + ".weight"] =
        RandomTensor({hidden}, 1.0f, 0.3f, shape.dtype, random);
  };
  auto add_matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    // Numbers stay near 1 from layer to layer, as in trained models, so that
    // the effect of a rounding on a logit is small and about equal everywhere.
    const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
    model.tensors[name + ".weight"] =
        RandomTensor({rows, cols}, 0.0f, deviation, shape.dtype, random);
  };
  add_matrix("model.embed_tokens", shape.vocab_size, hidden);
  if (!shape.tied) add_matrix("lm_head", shape.vocab_size, hidden);
  add_norm("model.norm");
  for (int i = 0; i < shape.num_layers; ++i) {
    const std::string layer = Concat("model.layers.", i, ".");
    add_norm(layer + "input_layernorm");
    add_norm(layer + "post_attention_layernorm");
    add_matrix(layer + "self_attn.q_proj", q_size, hidden);
    add_matrix(layer + "self_attn.k_proj", kv_size, hidden);
    add_matrix(layer + "self_attn.v_proj", kv_size, hidden);
    add_matrix(layer + "self_attn.o_proj", hidden, q_size);
    add_matrix(layer + "mlp.gate_proj", shape.intermediate_size, hidden);
    add_matrix(layer + "mlp.up_proj", shape.intermediate_size, hidden);
    add_matrix(layer + "mlp.down_proj", hidden, shape.intermediate_size);
  }
  return model;
}

json::object SafetensorsHeader(
    const std::map<std::string, TinyTensor>& tensors) {
  json::object header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t end =
        offset + int64_t(tensor.values.size()) * NumBytes(tensor.dtype);
    header[name] = {
        {"dtype", tensor.dtype},
        {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  return header;
}

std::string SafetensorsData(const std::map<std::string, TinyTensor>& tensors) {
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    for (const float value : tensor.values) {
      const uint32_t bits = Encode(value, tensor.dtype);
      data.append(reinterpret_cast<const char*>(&bits), NumBytes(tensor.dtype));
    }
  }
  return data;
}

std::string SafetensorsFileOf(const std::string& header,
                              const std::string& data) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + data;
}

ModelFiles FilesOf(const TinyModel& model, int num_shards) {
  ModelFiles files = {
      {"config.json", WriteJson(model.config)},
      {"generation_config.json", WriteJson(model.generation_config)}};
  std::vector<std::map<std::string, TinyTensor>> shards(num_shards);
  json::object weight_map;
  int next = 0;
  auto shard_name = [&](int i) {
    return num_shards == 1 ? "model.safetensors"
                           : Concat("model-", i, ".safetensors");
  };
  for (const auto& [name, tensor] : model.tensors) {
    weight_map[name] = shard_name(next);
    shards[next].emplace(name, tensor);
    next = (next + 1) % num_shards;
  }
  for (int i = 0; i < num_shards; ++i) {
    files[shard_name(i)] = SafetensorsFileOf(
        WriteJson(SafetensorsHeader(shards[i])), SafetensorsData(shards[i]));
  }
  if (num_shards > 1) {
    files["model.safetensors.index.json"] =
        WriteJson(json::object{{"weight_map", weight_map}});
  }
  return files;
}

}  // namespace espalier::testing
