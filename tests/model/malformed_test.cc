// Damaged model directories: each is refused with an error that names the
// fault, and no file crashes the loader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_model.h"
#include "model/transformer_weights.h"
#include "tests/model/feeder.h"
#include "tests/model/tiny_model.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::FilesOf;
using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::ModelFiles;
using ::espalier::testing::SafetensorsData;
using ::espalier::testing::SafetensorsFileOf;
using ::espalier::testing::SafetensorsHeader;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyModel;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr auto kMissing = absl::StatusCode::kNotFound;
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kNorm[] = "model.norm.weight";  // the last tensor, [8] F32

TinyModel SmallModel() {
  return MakeTinyModel({.vocab_size = 10,
                        .hidden_size = 8,
                        .intermediate_size = 12,
                        .num_layers = 1,
                        .num_heads = 2,
                        .num_kv_heads = 1,
                        .head_dim = 4},
                       1);
}

absl::Status LoadFiles(const ModelFiles& files) {
  const TempDirectory directory(files);
  const auto pool = ::espalier::testing::MakePool(1);
  return TransformerModel::Load(directory.path(), {.kv_cache_bytes = 1 << 20},
                                pool)
      .status();
}

absl::Status LoadWeights(const std::string& directory) {
  ASSIGN_OR_RETURN(const TransformerConfig config,
                   ReadTransformerConfig(directory));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(directory));
  return LoadTransformerWeights(
             std::make_shared<const Checkpoint>(std::move(checkpoint)), config)
      .status();
}

// Returns the error of LoadWeights for the files, with DIR for the directory.
absl::Status WeightsError(const ModelFiles& files) {
  const TempDirectory directory(files);
  const absl::Status status = LoadWeights(directory.path());
  std::string message = Message(status);
  const size_t at = message.find(directory.path());
  if (at != message.npos) message.replace(at, directory.path().size(), "DIR");
  return MakeError(status.code(), message);
}

// A way to damage a directory, and a part of the expected error.
struct Damage {
  std::string message;
  std::function<void(ModelFiles&)> apply;
  absl::StatusCode code = kInvalid;
};

void ExpectRefused(const std::vector<Damage>& damages) {
  const ModelFiles intact = FilesOf(SmallModel());
  ASSERT_OK(LoadFiles(intact));
  for (const Damage& damage : damages) {
    ModelFiles files = intact;
    damage.apply(files);
    EXPECT_THAT(LoadFiles(files),
                StatusIs(damage.code, HasSubstr(damage.message)));
  }
}

// As above for weights, where `message` is the whole message.
void ExpectWeightsRefused(const std::vector<Damage>& damages,
                          int num_shards = 1) {
  const ModelFiles intact = FilesOf(SmallModel(), num_shards);
  ASSERT_OK(LoadFiles(intact));
  for (const Damage& damage : damages) {
    ModelFiles files = intact;
    damage.apply(files);
    EXPECT_THAT(WeightsError(files), StatusIs(damage.code, Eq(damage.message)));
    EXPECT_THAT(LoadFiles(files).code(), Eq(damage.code)) << damage.message;
  }
}

// Replaces a field of a JSON file by `value`, a JSON text; removes it if that
// is empty.
std::function<void(ModelFiles&)> Set(const std::string& file,
                                     const std::string& key,
                                     const std::string& value) {
  return [=](ModelFiles& files) {
    json::object object = ParseJson(files[file])->as_object();
    object.erase(key);
    if (!value.empty()) object[key] = *ParseJson(value);
    files[file] = WriteJson(object);
  };
}
std::function<void(ModelFiles&)> SetConfig(const std::string& key,
                                           const std::string& value) {
  return Set("config.json", key, value);
}

// Rewrites the header of the weights.
std::function<void(ModelFiles&)> EditHeader(
    const std::function<void(json::object&)>& edit) {
  return [=](ModelFiles& files) {
    const TinyModel model = SmallModel();
    json::object header = SafetensorsHeader(model.tensors);
    edit(header);
    files[kWeights] =
        SafetensorsFileOf(WriteJson(header), SafetensorsData(model.tensors));
  };
}

// Sets a field of the entry of the final norm.
std::function<void(ModelFiles&)> SetEntry(const std::string& key,
                                          const std::string& value) {
  return EditHeader([=](json::object& header) {
    header[kNorm].as_object()[key] = *ParseJson(value);
  });
}

std::function<void(ModelFiles&)> Replace(const std::string& file,
                                         const std::string& bytes) {
  return [=](ModelFiles& files) { files[file] = bytes; };
}

std::function<void(ModelFiles&)> Remove(const std::string& file) {
  return [=](ModelFiles& files) { files.erase(file); };
}

std::string Offsets(int64_t begin_shift, int64_t end_shift) {
  const json::object header = SafetensorsHeader(SmallModel().tensors);
  const json::value& offsets = header.at(kNorm).at("data_offsets");
  return WriteJson({offsets.at(0).as_int64() + begin_shift,
                    offsets.at(1).as_int64() + end_shift});
}

TEST(MalformedConfigTest, EveryFieldOutOfRangeIsNamed) {
  ExpectRefused({
      {"no such file", Remove("config.json"), kMissing},
      {"config.json: not JSON", Replace("config.json", "{")},
      {"config.json: not UTF-8", Replace("config.json", "\"\xFF\"")},
      {"config.json: must be a JSON object", Replace("config.json", "[]")},
      {"generation_config.json: not JSON",
       Replace("generation_config.json", "nope")},
      {"model_type must be bart, gemma, gemma2, gemma3, gemma3_text, gpt2, "
       "llama, m2m_100, marian, mbart, mistral, mt5, opt, pegasus, phi3, "
       "qwen2, qwen3, stablelm, t5, umt5 or whisper, got \"mamba\"",
       SetConfig("model_type", "\"mamba\"")},
      {"phi3, qwen2, qwen3, stablelm, t5, umt5 or whisper, got nothing",
       SetConfig("model_type", "")},
      {"architectures must be [\"LlamaForCausalLM\"], got [\"MistralFor",
       SetConfig("architectures", "[\"MistralForCausalLM\"]")},
      {"hidden_act must be silu, swish, gelu_new or gelu_pytorch_tanh, got "
       "\"gelu\"",
       SetConfig("hidden_act", "\"gelu\"")},
      {"attention_bias must be true or false, got \"yes\"",
       SetConfig("attention_bias", "\"yes\"")},
      {"mlp_bias must be true or false, got 1", SetConfig("mlp_bias", "1")},
      {"quantization_config: quant_method must be \"compressed-tensors\" or "
       "\"fp8\", got nothing",
       SetConfig("quantization_config", "{\"bits\": 4}")},
      {"vocab_size is missing", SetConfig("vocab_size", "")},
      {"vocab_size must be an integer in [1, ", SetConfig("vocab_size", "0")},
      {"hidden_size must be an integer in [1, 1048576], got 8.5",
       SetConfig("hidden_size", "8.5")},
      {"intermediate_size must be an integer in [1, 1048576], got -3",
       SetConfig("intermediate_size", "-3")},
      {"num_hidden_layers must be an integer in [1, 4096], got 10000000000",
       SetConfig("num_hidden_layers", "10000000000")},
      {"num_attention_heads 2 must be a multiple of num_key_value_heads 3",
       SetConfig("num_key_value_heads", "3")},
      {"head_dim must be even and at least 2, got 5",
       SetConfig("head_dim", "5")},
      {"max_position_embeddings must be an integer in [1, ",
       SetConfig("max_position_embeddings", "18446744073709551615")},
      {"rms_norm_eps must be a number in (0, 1], got \"tiny\"",
       SetConfig("rms_norm_eps", "\"tiny\"")},
      {"rope_theta must be a number", SetConfig("rope_theta", "-1")},
      {"rope_type must be default, linear, dynamic, llama3, yarn or longrope, "
       "got \"ntk\"",
       SetConfig("rope_scaling", "{\"rope_type\": \"ntk\"}")},
      {"tie_word_embeddings must be true or false",
       SetConfig("tie_word_embeddings", "\"no\"")},
      {"config.json: eos_token_id must be an integer or a list of integers, "
       "got 1.5",
       SetConfig("eos_token_id", "1.5")},
      {"generation_config.json: eos_token_id must be an integer or a list of "
       "integers, got \"2\"",
       Set("generation_config.json", "eos_token_id", "[1, \"2\"]")},
  });
}

TEST(MalformedWeightsTest, EveryBrokenHeaderIsNamed) {
  ExpectWeightsRefused({
      {"DIR has neither model.safetensors nor model.safetensors.index.json",
       Remove(kWeights), kMissing},
      {"DIR/model.safetensors: file of 0 bytes has no header",
       Replace(kWeights, "")},
      {"DIR/model.safetensors: file of 7 bytes has no header",
       Replace(kWeights, "1234567")},
      {"DIR/model.safetensors: header length 18446744073709551615 must be at "
       "most 16777216",
       Replace(kWeights, std::string(8, '\xFF') + "{}")},
      {"DIR/model.safetensors: the file breaks off: its header has 3 bytes, "
       "and 2 follow its length",
       Replace(kWeights, std::string("\3\0\0\0\0\0\0\0{}", 10))},
      {"DIR/model.safetensors: header: not JSON at byte 5: incomplete JSON",
       Replace(kWeights, SafetensorsFileOf("{\"a\":", ""))},
      {"DIR/model.safetensors: header must be an object, got []",
       Replace(kWeights, SafetensorsFileOf("[]", ""))},
      {"DIR/model.safetensors: __metadata__ must be an object, got 5",
       Replace(kWeights, SafetensorsFileOf("{\"__metadata__\": 5}", ""))},
      {"DIR/model.safetensors: __metadata__ must have strings, got 1 for \"a\"",
       Replace(kWeights,
               SafetensorsFileOf("{\"__metadata__\": {\"a\": 1}}", ""))},
      {"DIR/model.safetensors: tensor a: entry must be an object, got 3",
       Replace(kWeights, SafetensorsFileOf("{\"a\": 3}", ""))},
      {"DIR/model.safetensors: tensor model.norm.weight: unknown dtype F31",
       SetEntry("dtype", "\"F31\"")},
      {"DIR/model.safetensors: tensor model.norm.weight: dtype must be a "
       "string, got 32",
       SetEntry("dtype", "32")},
      {"DIR/model.safetensors: tensor model.norm.weight: shape must be a list "
       "of integers, got 8",
       SetEntry("shape", "8")},
      {"DIR/model.safetensors: tensor model.norm.weight: shape must be a list "
       "of integers, got "
       "\"77777777777777777777777777777777777777777777777777777777777...",
       SetEntry("shape", "\"" + std::string(60, '7') + "漢\"")},
      {"DIR/model.safetensors: tensor model.norm.weight: unknown dtype "
       "7777777777777777777777777777777777777777777777777777777777...",
       SetEntry("dtype", "\"" + std::string(58, '7') + "漢漢\"")},
      {"DIR/model.safetensors: tensor "
       "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...: entry "
       "must be an object, got 3",
       EditHeader(
           [](json::object& header) { header[std::string(100, 'n')] = 3; })},
      {"DIR/model.safetensors: tensor model.norm.weight: data_offsets must be "
       "a list of integers, got nothing",
       EditHeader([](json::object& header) {
         header[kNorm].as_object().erase("data_offsets");
       })},
      {"DIR/model.safetensors: header length 16777217 must be at most "
       "16777216",
       Replace(kWeights, std::string("\1\0\0\1\0\0\0\0", 8) +
                             std::string((16 << 20) + 1, ' '))},
      {"DIR/model.safetensors: tensor model.norm.weight: shape must hold "
       "integers in [0, 2^63), got -8",
       SetEntry("shape", "[-8]")},
      {"DIR/model.safetensors: tensor model.norm.weight: shape must hold "
       "integers in [0, 2^63), got 8.5",
       SetEntry("shape", "[8.5]")},
      {"DIR/model.safetensors: tensor model.norm.weight: shape must hold "
       "integers in [0, 2^63), got 18446744073709551615",
       SetEntry("shape", "[18446744073709551615]")},
      {"DIR/model.safetensors: tensor model.norm.weight: shape overflows at "
       "dimension of 4611686018427387904",
       SetEntry("shape", "[4611686018427387904, 4611686018427387904]")},
      {"DIR/model.safetensors: tensor model.norm.weight: data_offsets must be "
       "2 integers, got [0, 1, 2]",
       SetEntry("data_offsets", "[0, 1, 2]")},
      {"DIR/model.safetensors: tensor model.norm.weight: data_offsets [40, 8] "
       "must ascend",
       SetEntry("data_offsets", "[40, 8]")},
      {"DIR/model.safetensors: tensor model.norm.weight: the file breaks off: "
       "data_offsets [2632, 2664] are not within 2656 bytes of data",
       SetEntry("data_offsets", Offsets(8, 8))},
      {"DIR/model.safetensors: tensor model.norm.weight: data_offsets [2624, "
       "2656] hold 32 bytes, shape and dtype need 36",
       SetEntry("shape", "[9]")},
      {"DIR/model.safetensors: tensor model.norm.weight: data_offsets [2624, "
       "2656] hold 32 bytes, shape and dtype need 16",
       SetEntry("dtype", "\"BF16\"")},
      {"DIR/model.safetensors: tensor model.norm.weight: data begins at 2592, "
       "the one before ends at 2624",
       SetEntry("data_offsets", Offsets(-32, -32))},
      {"DIR/model.safetensors: tensor "
       "model.layers.0.post_attention_layernorm.weight: data begins at 1824, "
       "the one before ends at 1440",
       EditHeader([](json::object& header) {
         header.erase("model.layers.0.mlp.up_proj.weight");
       })},
      {"DIR/model.safetensors: tensors end at 2624, the data at 2656",
       EditHeader([](json::object& header) { header.erase(kNorm); })},
      {"DIR/model.safetensors: tensors end at 2656, the data at 2660",
       [](ModelFiles& files) { files[kWeights] += "more"; }},
      {"DIR/model.safetensors: tensor model.norm.weight: the file breaks off: "
       "data_offsets [2624, 2656] are not within 2655 bytes of data",
       [](ModelFiles& files) { files[kWeights].pop_back(); }},
  });
}

TEST(MalformedWeightsTest, TensorsMustBeWhatTheConfigSays) {
  ExpectWeightsRefused({
      {"DIR/model.safetensors: tensor model.layers.1.input_layernorm.weight is "
       "missing",
       SetConfig("num_hidden_layers", "2")},
      {"DIR/model.safetensors: tensor model.embed_tokens.weight must have "
       "shape [11, 8] by config.json, got [10, 8]",
       SetConfig("vocab_size", "11")},
      {"DIR/model.safetensors: tensor model.embed_tokens.weight must have "
       "shape [10, 1048576] by config.json, got [10, 8]",
       SetConfig("hidden_size", "1048576")},
      {"DIR/model.safetensors: tensor model.layers.0.self_attn.q_proj.weight "
       "must have shape [12, 8] by config.json, got [8, 8]",
       SetConfig("head_dim", "6")},
      {"DIR/model.safetensors: tensor model.layers.0.mlp.gate_proj.weight must "
       "have shape [13, 8] by config.json, got [12, 8]",
       SetConfig("intermediate_size", "13")},
      {"DIR/model.safetensors: tensor lm_head.weight is not "
       "embed_tokens.weight, and config.json has tie_word_embeddings true",
       SetConfig("tie_word_embeddings", "true")},
      {"DIR/model.safetensors: tensor model.norm.weight must have shape [8] by "
       "config.json, got [1, 8]",
       SetEntry("shape", "[1, 8]")},
      {"DIR/model.safetensors: tensor model.norm.weight must have dtype BF16, "
       "F16 or F32, got I32",
       SetEntry("dtype", "\"I32\"")},
  });
}

TEST(MalformedWeightsTest, EveryBrokenIndexIsNamed) {
  const auto map_to = [](const std::string& shard) {
    return Set(kIndex, "weight_map",
               WriteJson(json::object{{"lm_head.weight", shard}}));
  };
  ExpectWeightsRefused(
      {
          {"DIR/model.safetensors.index.json: not JSON: there is nothing in it",
           Replace(kIndex, "")},
          {"DIR/model.safetensors.index.json: must be a JSON object, got [1]",
           Replace(kIndex, "[1]")},
          {"DIR/model.safetensors.index.json has 16777217 bytes, at most "
           "16777216 are read",
           Replace(kIndex, std::string((16 << 20) + 1, ' '))},
          {"DIR/model.safetensors.index.json: weight_map must be an object, "
           "got nothing",
           Replace(kIndex, "{}")},
          {"DIR/model.safetensors.index.json: weight_map must be an object, "
           "got [1]",
           Set(kIndex, "weight_map", "[1]")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got 1",
           Set(kIndex, "weight_map", "{\"lm_head.weight\": 1}")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got \"../a\"",
           map_to("../a")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got \"/etc/passwd\"",
           map_to("/etc/passwd")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got \"a\\\\b\"",
           map_to("a\\b")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got \"\"",
           map_to("")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got \".\"",
           map_to(".")},
          {"DIR/model.safetensors.index.json: weight_map of lm_head.weight "
           "must be a plain file name, got \"a\\u0000b\"",
           map_to(std::string("a\0b", 3))},
          {"no such file: DIR/model-9.safetensors",
           map_to("model-9.safetensors"), kMissing},
          {"no such file: DIR/model-1.safetensors",
           Remove("model-1.safetensors"), kMissing},
          {"DIR/model-1.safetensors: tensor lm_head.weight is missing",
           map_to("model-1.safetensors")},
          {"DIR/model.safetensors.index.json: tensor model.embed_tokens.weight "
           "is missing",
           map_to("model-0.safetensors")},
          {"DIR/model-1.safetensors: tensor model.embed_tokens.weight must "
           "have shape [10, 16] by config.json, got [10, 8]",
           SetConfig("hidden_size", "16")},
          {"DIR/model-0.safetensors: tensor lm_head.weight must have dtype "
           "BF16, F16 or F32, got I32",
           [](ModelFiles& files) {
             std::string& bytes = files["model-0.safetensors"];
             const size_t at = bytes.find("F32");
             bytes.replace(at, 3, "I32");
           }},
          {"DIR/model-1.safetensors: header length 9187201950435737471 must be "
           "at most 16777216",
           Replace("model-1.safetensors", std::string(8, '\x7F'))},
      },
      2);
}

// Damages one file at a time of a directory, `num_rounds` times, and runs what
// still loads. Some of it has to load and some not: otherwise readers, or the
// model, have seen no damage.
void Fuzz(int num_rounds,
          const std::function<void(int round, std::string& bytes)>& damage) {
  const ModelFiles intact = FilesOf(SmallModel());
  const TempDirectory directory(intact);
  const auto pool = ::espalier::testing::MakePool(1);
  int num_loaded = 0;
  for (int round = 0; round < num_rounds; ++round) {
    const auto& [name, bytes] = *std::next(intact.begin(), round % 3);
    std::string damaged = bytes;
    damage(round, damaged);
    directory.Write(name, damaged);
    const auto model = TransformerModel::Load(
        directory.path(), {.kv_cache_bytes = 1 << 20}, pool);
    if (model.ok()) espalier::testing::FeedAlone(model->get(), {0}, 1);
    num_loaded += model.ok();
    directory.Write(name, bytes);
  }
  EXPECT_GT(num_loaded, num_rounds / 100);
  EXPECT_LT(num_loaded, num_rounds - num_rounds / 10);
}

TEST(MalformedFuzzTest, NoFlippedBitsCrash) {
  std::mt19937 random(2);
  Fuzz(1500, [&](int round, std::string& bytes) {
    // Mostly in the header, where they hurt.
    const size_t end = std::min<size_t>(bytes.size(), round % 4 ? 1200 : -1);
    const int num_flips = 1 + random() % 3;
    for (int i = 0; i < num_flips; ++i) {
      bytes[random() % end] ^= 1 << random() % 8;
    }
  });
}

// A header consists of digits, and other digits make other sizes.
TEST(MalformedFuzzTest, NoOtherNumbersCrash) {
  std::mt19937 random(4);
  Fuzz(1000, [&](int, std::string& bytes) {
    const size_t end = std::min<size_t>(bytes.size(), 1200);
    for (size_t i = 0; i < end; ++i) {
      if (std::isdigit(bytes[i]) && random() % 16 == 0) {
        bytes[i] = static_cast<char>('0' + random() % 10);
      }
    }
  });
}

TEST(MalformedFuzzTest, NoTruncatedFileCrashesOrLoads) {
  const ModelFiles intact = FilesOf(SmallModel());
  std::mt19937 random(3);
  for (const auto& [name, bytes] : intact) {
    for (int round = 0; round < 60; ++round) {
      ModelFiles files = intact;
      files[name].resize(random() % bytes.size());
      EXPECT_THAT(LoadFiles(files), StatusIs(kInvalid, HasSubstr(name)));
    }
  }
}

TEST(MalformedModelTest, AWeightThatNothingReadsIsRefused) {
  const auto load_with = [](const std::string& name) {
    TinyModel model = SmallModel();
    model.tensors[name] = {.shape = {8}, .values = std::vector<float>(8, 1)};
    return LoadFiles(FilesOf(model));
  };
  for (const std::string name :
       {"model.layers.1.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.bias", "another.weight"}) {
    EXPECT_THAT(load_with(name),
                StatusIs(kInvalid, HasSubstr("tensor " + name +
                                             " is no part of a Llama model of "
                                             "num_hidden_layers 1")));
  }
  EXPECT_OK(load_with("model.layers.0.self_attn.rotary_emb.inv_freq"));
}

}  // namespace
}  // namespace espalier
