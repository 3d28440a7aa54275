// A model directory of a small random Whisper, written for a test: a tokenizer
// of tests/data/speech and seeded weights. Its windows have a second of audio.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"

namespace espalier::testing {

struct SmallWhisper {
  bool is_multilingual = true;
  unsigned seed = 1;
  int max_context = 40;
};

// Frames of its windows: a second.
inline constexpr int kSmallWindow = 100;

class WhisperDirectory {
 public:
  explicit WhisperDirectory(const SmallWhisper& shape = {})
      : random_(shape.seed) {
    const std::string tokenizer =
        shape.is_multilingual ? "tokenizer" : "old_english_tokenizer";
    std::filesystem::copy_file(
        SourcePath("tests/data/speech/" + tokenizer + "/tokenizer.json"),
        scratch_.path("tokenizer.json"));
    // <|endoftext|> is the first token after the text.
    const int end = shape.is_multilingual ? 351 : 353;
    const int vocab_size = end + (shape.is_multilingual ? 1609 : 107 + 1501);
    scratch_.Write("config.json",
                   WriteJson(json::object{
                       {"model_type", "whisper"},
                       {"architectures", {"WhisperForConditionalGeneration"}},
                       {"vocab_size", vocab_size},
                       {"num_mel_bins", kBands},
                       {"d_model", kWidth},
                       {"encoder_layers", 1},
                       {"decoder_layers", 1},
                       {"encoder_attention_heads", 2},
                       {"decoder_attention_heads", 2},
                       {"encoder_ffn_dim", 2 * kWidth},
                       {"decoder_ffn_dim", 2 * kWidth},
                       {"max_source_positions", kSmallWindow / 2},
                       {"max_target_positions", shape.max_context},
                       {"activation_function", "gelu"},
                       {"is_encoder_decoder", true},
                       {"decoder_start_token_id", end + 1},
                       {"eos_token_id", end},
                       {"pad_token_id", end}}));
    scratch_.Write(
        "generation_config.json",
        WriteJson(json::object{{"is_multilingual", shape.is_multilingual},
                               {"decoder_start_token_id", end + 1},
                               {"eos_token_id", end}}));
    AddModel(vocab_size, shape.max_context);
    scratch_.Write("model.safetensors", File());
  }

  const std::string& path() const { return scratch_.path(); }
  const ScratchDirectory& files() const { return scratch_; }

 private:
  static constexpr int kWidth = 16;
  static constexpr int kBands = 80;

  void Add(const std::string& name, std::vector<int64_t> shape, float mean,
           float deviation) {
    std::normal_distribution<float> values(mean, deviation);
    size_t size = 1;
    for (const int64_t length : shape) size *= static_cast<size_t>(length);
    const size_t begin = data_.size();
    data_.resize(begin + size * sizeof(float));
    for (size_t i = 0; i < size; ++i) {
      const float value = values(random_);
      std::memcpy(data_.data() + begin + i * sizeof(float), &value,
                  sizeof(float));
    }
    header_["model." + name] =
        json::object{{"dtype", "F32"},
                     {"shape", json::array(shape.begin(), shape.end())},
                     {"data_offsets", {begin, data_.size()}}};
  }
  void AddNorm(const std::string& name) {
    Add(name + ".weight", {kWidth}, 1, 0.1F);
    Add(name + ".bias", {kWidth}, 0, 0.1F);
  }
  void AddLinear(const std::string& name, int outputs, int inputs) {
    Add(name + ".weight", {outputs, inputs}, 0, 0.4F);
    Add(name + ".bias", {outputs}, 0, 0.1F);
  }
  void AddAttention(const std::string& name) {
    for (const char* const part : {".q_proj", ".v_proj", ".out_proj"}) {
      AddLinear(name + part, kWidth, kWidth);
    }
    Add(name + ".k_proj.weight", {kWidth, kWidth}, 0, 0.4F);
    AddNorm(name + "_layer_norm");
  }
  void AddModel(int vocab_size, int max_context) {
    Add("encoder.conv1.weight", {kWidth, kBands, 3}, 0, 0.2F);
    Add("encoder.conv1.bias", {kWidth}, 0, 0.1F);
    Add("encoder.conv2.weight", {kWidth, kWidth, 3}, 0, 0.3F);
    Add("encoder.conv2.bias", {kWidth}, 0, 0.1F);
    Add("encoder.embed_positions.weight", {kSmallWindow / 2, kWidth}, 0, 0.3F);
    Add("decoder.embed_positions.weight", {max_context, kWidth}, 0, 0.6F);
    Add("decoder.embed_tokens.weight", {vocab_size, kWidth}, 0, 0.6F);
    for (const std::string stack : {"encoder", "decoder"}) {
      AddNorm(stack + ".layer_norm");
      const std::string layer = stack + ".layers.0.";
      AddAttention(layer + "self_attn");
      if (stack == "decoder") AddAttention(layer + "encoder_attn");
      AddLinear(layer + "fc1", 2 * kWidth, kWidth);
      AddLinear(layer + "fc2", kWidth, 2 * kWidth);
      AddNorm(layer + "final_layer_norm");
    }
  }
  std::string File() const {
    const std::string header = WriteJson(header_);
    const auto size = static_cast<uint64_t>(header.size());
    std::string file(sizeof(size), '\0');
    std::memcpy(file.data(), &size, sizeof(size));
    return file + header + data_;
  }

  const ScratchDirectory scratch_;
  std::mt19937 random_;
  json::object header_;
  std::string data_;
};

}  // namespace espalier::testing
