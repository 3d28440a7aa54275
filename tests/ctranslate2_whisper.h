// A Whisper of transformers as CTranslate2's converter writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "request/json/generation_config.h"
#include "tests/model/ctranslate2/ctranslate2_bytes.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {

class CTranslate2Whisper {
 public:
  //   directory  a WhisperDirectory's
  explicit CTranslate2Whisper(const std::string& directory)
      : directory_(directory), checkpoint_(*Checkpoint::Open(directory)) {
    content_.specification = "WhisperSpec";
    content_.revision = 3;
    AddSizes();
    for (const char* const conv : {"conv1", "conv2"}) {
      AddLinear(Concat("encoder/", conv), {Concat("encoder.", conv)});
    }
    for (const std::string stack : {"encoder", "decoder"}) {
      Add(stack + "/position_encodings/encodings",
          {stack + ".embed_positions.weight"});
      AddNorm(stack + "/layer_norm", stack + ".layer_norm");
      for (int i = 0; Has(Concat(stack, ".layers.", i, ".fc1.weight")); ++i) {
        AddLayer(Concat(stack, "/layer_", i), Concat(stack, ".layers.", i));
      }
    }
    Add("decoder/embeddings/weight", {"decoder.embed_tokens.weight"});
    content_.aliases = {
        {"decoder/projection/weight", "decoder/embeddings/weight"}};
  }

  CTranslate2Content& content() { return content_; }
  const ScratchDirectory& files() const { return scratch_; }

  // Returns the path of the directory.
  const std::string& Write() {
    scratch_.Write("model.bin", content_.Bytes());
    scratch_.Write("config.json",
                   R"({"alignment_heads": [[0, 1]], "lang_ids": [354],
                       "suppress_ids": [1, 2], "suppress_ids_begin": [3]})");
    std::filesystem::copy_file(
        directory_ + "/tokenizer.json", scratch_.path("tokenizer.json"),
        std::filesystem::copy_options::overwrite_existing);
    json::array tokens;
    const uint32_t num_tokens =
        content_.At("decoder/embeddings/weight").shape[0];
    for (uint32_t i = 0; i < num_tokens; ++i) {
      tokens.push_back(json::string(Concat("t", i)));
    }
    const json::object config = *ReadConfigObject(directory_ + "/config.json");
    tokens[config.at("eos_token_id").as_int64()] = "<|endoftext|>";
    tokens[config.at("decoder_start_token_id").as_int64()] =
        "<|startoftranscript|>";
    scratch_.Write("vocabulary.json", WriteJson(tokens));
    return scratch_.path();
  }

 private:
  static constexpr uint32_t kWidth = 16;  // as in WhisperDirectory

  bool Has(const std::string& name) const {
    return checkpoint_.Find("model." + name).ok();
  }

  void AddSizes() {
    const auto add = [&](const std::string& name, uint8_t type,
                         std::string bytes) {
      content_.variables.push_back({name, {}, type, std::move(bytes)});
    };
    add("encoder/num_heads", 2, BytesOf(int16_t{2}));
    add("decoder/num_heads", 2, BytesOf(int16_t{2}));
    add("decoder/activation", 1, BytesOf(int8_t{3}));
    add("decoder/pre_norm", 1, BytesOf(int8_t{1}));
    for (const char* const name :
         {"alibi", "alibi_use_positive_positions", "scale_alibi",
          "scale_embeddings", "start_from_zero_embedding"}) {
      add(Concat("decoder/", name), 1, BytesOf(int8_t{0}));
    }
    add("decoder/alignment_layer", 2, BytesOf(int16_t{-1}));
    add("decoder/alignment_heads", 2, BytesOf(int16_t{1}));
  }

  // Adds the rows of all tensors, one after another.
  void Add(const std::string& name, const std::vector<std::string>& from) {
    CTranslate2Variable variable = {name, {}, 0, {}};
    for (const std::string& part : from) {
      if (!Has(part)) {  // a bias of keys
        variable.shape = {kWidth * static_cast<uint32_t>(from.size())};
        variable.bytes.resize(variable.bytes.size() + kWidth * sizeof(float));
        continue;
      }
      const StoredTensor& tensor = *checkpoint_.Find("model." + part)->tensor;
      variable.shape.assign(tensor.shape.begin(), tensor.shape.end());
      variable.shape[0] *= static_cast<uint32_t>(from.size());
      variable.bytes.append(reinterpret_cast<const char*>(tensor.data.data()),
                            tensor.data.size());
    }
    content_.variables.push_back(std::move(variable));
  }
  void AddNorm(const std::string& name, const std::string& from) {
    Add(name + "/gamma", {from + ".weight"});
    Add(name + "/beta", {from + ".bias"});
  }
  void AddLinear(const std::string& name,
                 const std::vector<std::string>& from) {
    for (const std::string kind : {"weight", "bias"}) {
      std::vector<std::string> parts = from;
      for (std::string& part : parts) part += "." + kind;
      Add(Concat(name, "/", kind), parts);
    }
  }
  void AddLayer(const std::string& to, const std::string& from) {
    const std::string self = from + ".self_attn",
                      to_self = to + "/self_attention";
    AddNorm(to_self + "/layer_norm", self + "_layer_norm");
    AddLinear(to_self + "/linear_0",
              {self + ".q_proj", self + ".k_proj", self + ".v_proj"});
    AddLinear(to_self + "/linear_1", {self + ".out_proj"});
    const std::string cross = from + ".encoder_attn",
                      to_cross = to + "/attention";
    if (Has(cross + ".q_proj.weight")) {
      AddNorm(to_cross + "/layer_norm", cross + "_layer_norm");
      AddLinear(to_cross + "/linear_0", {cross + ".q_proj"});
      AddLinear(to_cross + "/linear_1", {cross + ".k_proj", cross + ".v_proj"});
      AddLinear(to_cross + "/linear_2", {cross + ".out_proj"});
    }
    AddNorm(to + "/ffn/layer_norm", from + ".final_layer_norm");
    AddLinear(to + "/ffn/linear_0", {from + ".fc1"});
    AddLinear(to + "/ffn/linear_1", {from + ".fc2"});
  }

  const std::string directory_;
  const Checkpoint checkpoint_;
  const ScratchDirectory scratch_;
  CTranslate2Content content_;
};

}  // namespace espalier::testing
