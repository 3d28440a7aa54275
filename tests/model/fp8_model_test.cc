// Models of e4m3 weights on the CPU, quantised when loaded or stored as codes:
// they equal models of the dequantized bfloat16 weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "model/transformer_model.h"
#include "tests/model/feeder.h"
#include "tests/model/fp8_models.h"
#include "tests/model/tiny_model.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::FeedAlone;
using ::espalier::testing::FilesOf;
using ::espalier::testing::Fp8Model;
using ::espalier::testing::kCompressedTensors;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::RandomTokens;
using ::espalier::testing::ScaleShape;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyModel;
using ::espalier::testing::TinyTensor;
using ::espalier::testing::WidenedFp8Model;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr char kDown[] = "model.layers.1.mlp.down_proj.weight";
constexpr char kDownScale[] = "model.layers.1.mlp.down_proj.weight_scale";

absl::StatusOr<std::unique_ptr<TransformerModel>> Load(
    const TinyModel& tiny, WeightFormat weights = WeightFormat::kAsStored,
    int num_shards = 1) {
  const TempDirectory directory(FilesOf(tiny, num_shards));
  return TransformerModel::Load(directory.path(),
                                {.kv_cache_bytes = 1 << 20, .weights = weights},
                                MakePool(2));
}

LogitsRows Logits(const TinyModel& tiny,
                  WeightFormat weights = WeightFormat::kAsStored,
                  int num_shards = 1) {
  const auto model = Load(tiny, weights, num_shards);
  EXPECT_OK(model);
  return FeedAlone(model->get(), RandomTokens(30, 23, 6), 7);
}

TEST(Fp8ModelTest, StoredCodesGiveTheBitsOfWhatTheyStandFor) {
  const TinyModel tiny = MakeTinyModel({.dtype = "BF16"}, 5);
  for (const ScaleShape shape : {ScaleShape::kNone, ScaleShape::kOne,
                                 ScaleShape::kRows, ScaleShape::kColumn}) {
    for (const std::string dtype : {"BF16", "F32"}) {
      const TinyModel fp8 = Fp8Model(tiny, shape, dtype);
      const LogitsRows expected = Logits(WidenedFp8Model(fp8));
      EXPECT_EQ(Logits(fp8), expected);
      EXPECT_EQ(Logits(fp8, WeightFormat::kAsStored, 3), expected);
      // Stored codes are not changed.
      EXPECT_EQ(Logits(fp8, WeightFormat::kFp8), expected);
    }
  }
}

// Scales of rows in one piece that holds gate and up, and some matrices alone.
TEST(Fp8ModelTest, PartsOfALayerMayBeStoredOtherwise) {
  const TinyModel tiny = MakeTinyModel({.dtype = "BF16"}, 5);
  TinyModel fp8 = Fp8Model(tiny);
  for (const std::string name :
       {"model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.mlp.gate_proj.weight", kDown}) {
    fp8.tensors[name] = tiny.tensors.at(name);
    fp8.tensors.erase(name + "_scale");
  }
  EXPECT_EQ(Logits(fp8), Logits(WidenedFp8Model(fp8)));
}

TEST(Fp8ModelTest, AHeadMayBeStoredSo) {
  const TinyModel tiny = MakeTinyModel({.dtype = "BF16"}, 5);
  TinyModel named = tiny;  // as Fp8Model knows matrices
  named.tensors["lm_head_proj.weight"] = tiny.tensors.at("lm_head.weight");
  TinyModel fp8 = Fp8Model(named);
  const auto rename = [](const std::string& from, const std::string& to,
                         TinyModel* model) {
    auto node = model->tensors.extract(from);
    model->tensors.erase(to);
    node.key() = to;
    model->tensors.insert(std::move(node));
  };
  TinyModel widened = WidenedFp8Model(fp8);
  rename("lm_head_proj.weight", "lm_head.weight", &fp8);
  rename("lm_head_proj.weight_scale", "lm_head.weight_scale", &fp8);
  rename("lm_head_proj.weight", "lm_head.weight", &widened);
  EXPECT_EQ(Logits(fp8), Logits(widened));
}

// Holds for any dtype. Head and embeddings are not quantised.
TEST(Fp8ModelTest, QuantisingGivesTheBitsOfWhatTheCodesStandFor) {
  for (const std::string dtype : {"BF16", "F16", "F32"}) {
    for (const bool tied : {false, true}) {
      const TinyModel tiny = MakeTinyModel({.tied = tied, .dtype = dtype}, 5);
      EXPECT_EQ(Logits(tiny, WeightFormat::kFp8),
                Logits(WidenedFp8Model(Fp8Model(tiny))))
          << dtype;
    }
  }
}

// int8 and int4 are quantised from the dequantized codes.
TEST(Fp8ModelTest, StoredCodesMayBeQuantisedAgain) {
  const TinyModel fp8 = Fp8Model(MakeTinyModel({.dtype = "BF16"}, 5));
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    EXPECT_EQ(Logits(fp8, format), Logits(WidenedFp8Model(fp8), format));
  }
}

TEST(Fp8ModelTest, BothToolsConfigsAreRead) {
  const TinyModel tiny = Fp8Model(MakeTinyModel({.dtype = "BF16"}, 5));
  for (const char* config :
       {kCompressedTensors, R"({"quant_method": "fp8"})",
        R"({"quant_method": "fp8", "activation_scheme": "dynamic",
            "weight_block_size": null, "ignored_layers": ["lm_head"]})",
        R"({"quant_method": "compressed-tensors", "format": "naive-quantized",
            "config_groups": {"a": {"weights": {"type": "float", "num_bits": 8,
              "strategy": "tensor"}, "input_activations": null}}})"}) {
    TinyModel model = tiny;
    model.config["quantization_config"] = *ParseJson(config);
    EXPECT_OK(Load(model)) << config;
  }
}

// ---- What is refused --------------------------------------------------------

// kCompressedTensors with a field set: of the weights, of the group, of all.
std::string Config(const std::string& place, const std::string& field,
                   const std::string& value) {
  json::value config = *ParseJson(kCompressedTensors);
  json::object* object = &config.as_object();
  json::object* const group =
      &object->at("config_groups").at("group_0").as_object();
  if (place == "weights") object = &group->at("weights").as_object();
  if (place == "inputs") object = &group->at("input_activations").as_object();
  if (place == "group") object = group;
  object->erase(field);
  if (!value.empty()) (*object)[field] = *ParseJson(value);
  return WriteJson(config);
}

TEST(Fp8ModelTest, OtherConfigsAreRefusedByNameAndValue) {
  const std::pair<std::string, std::string> cases[] = {
      {"3", "quantization_config must be an object, got 3"},
      {"{}",
       "quant_method must be \"compressed-tensors\" or \"fp8\", got "
       "nothing"},
      {R"({"quant_method": "awq"})", "or \"fp8\", got \"awq\""},
      {R"({"quant_method": "fbgemm_fp8"})", "or \"fp8\", got \"fbgemm_fp8\""},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
       "quantization_config: weight_block_size is not supported, got [128,"},
      {R"({"quant_method": "fp8", "activation_scheme": "static"})",
       "activation_scheme must be \"dynamic\", got \"static\""},
      {R"({"quant_method": "fp8", "kv_cache_scheme": "fp8"})",
       "kv_cache_scheme is not supported, got \"fp8\""},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})",
       "fmt must be \"e4m3\", got \"e5m2\""},
      {Config("", "format", "\"pack-quantized\""),
       "format must be \"float-quantized\" or \"naive-quantized\", got "
       "\"pack-quantized\""},
      {Config("", "format", ""), "\"naive-quantized\", got nothing"},
      {Config("", "quantization_status", "\"frozen\""),
       "quantization_status must be \"compressed\", got \"frozen\""},
      {Config("", "kv_cache_scheme", "{\"num_bits\": 8}"),
       "kv_cache_scheme is not supported, got {\"num_bits\": 8}"},
      {Config("", "sparsity_config", "{\"format\": \"sparse-24\"}"),
       "sparsity_config is not supported"},
      {Config("", "transform_config", "{\"a\": 1}"),
       "transform_config is not supported"},
      {Config("", "config_groups", "[]"),
       "config_groups must be an object, got []"},
      {Config("", "config_groups", "{\"a\": 1}"), "a must be an object, got 1"},
      {Config("group", "weights", "null"),
       "group_0: weights must be an object, got "},
      {Config("group", "format", "\"int-quantized\""),
       "group_0: format must be \"float-quantized\" or"},
      {Config("group", "output_activations", "{\"num_bits\": 8}"),
       "group_0: output_activations is not supported"},
      {Config("inputs", "dynamic", "false"),
       "group_0: input_activations: dynamic must be true, got false"},
      {Config("inputs", "dynamic", ""),
       "input_activations: dynamic must be true, got false"},
      {Config("weights", "type", "\"int\""),
       "group_0: weights: type must be \"float\", got \"int\""},
      {Config("weights", "type", ""), "type must be \"float\", got nothing"},
      {Config("weights", "num_bits", "4"), "num_bits must be 8, got 4"},
      {Config("weights", "strategy", "\"block\""),
       "strategy must be \"channel\" or \"tensor\", got \"block\""},
      {Config("weights", "strategy", "\"group\""), "got \"group\""},
      {Config("weights", "symmetric", "false"),
       "symmetric must be true, got false"},
      {Config("weights", "dynamic", "true"), "dynamic must be false, got true"},
      {Config("weights", "group_size", "128"),
       "group_size is not supported, got 128"},
      {Config("weights", "block_structure", "[128, 128]"),
       "block_structure is not supported"},
      {Config("weights", "actorder", "\"group\""),
       "actorder is not supported, got \"group\""},
  };
  const TinyModel tiny = Fp8Model(MakeTinyModel({.dtype = "BF16"}, 5));
  for (const auto& [config, message] : cases) {
    TinyModel model = tiny;
    model.config["quantization_config"] = *ParseJson(config);
    EXPECT_THAT(Load(model).status(),
                StatusIs(kInvalid, AllOf(HasSubstr("quantization_config"),
                                         HasSubstr(message))))
        << config;
  }
}

using Edit = std::function<void(TinyModel*)>;
Edit SetScale(const TinyTensor& scale) {
  return [=](TinyModel* model) { model->tensors[kDownScale] = scale; };
}

TEST(Fp8ModelTest, WrongTensorsAreRefusedByName) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> ones(24, 1.0f);
  const auto with = [&](int row, float value) {
    std::vector<float> values = ones;
    values[row] = value;
    return values;
  };
  const std::pair<Edit, std::string> cases[] = {
      {[](TinyModel* model) { model->tensors.erase(kDownScale); },
       "tensor model.layers.1.mlp.down_proj.weight_scale is missing"},
      {[](TinyModel* model) { model->config.erase("quantization_config"); },
       "must have dtype BF16, F16 or F32, got F8_E4M3"},
      {SetScale({"F32", {1, 24}, ones}),
       "weight_scale must have shape [], [1], [24] or [24, 1], got [1, 24]"},
      {SetScale({"F32", {23}, std::vector<float>(23, 1.0f)}), "got [23]"},
      {SetScale({"F32", {24, 2}, std::vector<float>(48, 1.0f)}), "got [24, 2]"},
      {SetScale({"F8_E4M3", {24}, ones}),
       "weight_scale must have dtype BF16, F16 or F32, got F8_E4M3"},
      {SetScale({"F32", {24}, with(7, -0.5f)}),
       "weight_scale: scale 7 must be in [0, 256), got -0.5"},
      {SetScale({"F32", {24}, with(23, 256)}),
       "scale 23 must be in [0, 256), got 256"},
      {SetScale({"F32", {24}, with(0, 255.9f)}), "scale 0 must be in [0, 256)"},
      {SetScale({"F32", {24}, with(1, kNan)}), "scale 1 must be in [0, 256)"},
      {SetScale({"F32", {}, {std::numeric_limits<float>::infinity()}}),
       "scale 0 must be in [0, 256), got inf"},
      {[&](TinyModel* model) { model->tensors[kDown].values[41] = kNan; },
       "tensor model.layers.1.mlp.down_proj.weight: row 1 has a NaN in "
       "column 1, the code "},
      {[](TinyModel* model) {
         model->tensors[kDown].shape = {40, 24};
       },
       "down_proj.weight must have shape [24, 40] by config.json"},
      {[&](TinyModel* model) {
         model->tensors["model.layers.1.mlp.down_proj.input_scale"] = {
             "F32", {}, {1.0f}};
       },
       "down_proj.input_scale is no part of a Llama model"},
      {[](TinyModel* model) {
         model->tensors["model.embed_tokens.weight"].dtype = "F8_E4M3";
       },
       "embed_tokens.weight must have dtype BF16, F16 or F32, got F8_E4M3"},
      {[](TinyModel* model) {
         model->tensors["model.norm.weight"].dtype = "F8_E4M3";
       },
       "model.norm.weight must have dtype BF16, F16 or F32, got F8_E4M3"},
  };
  const TinyModel tiny = Fp8Model(MakeTinyModel({.dtype = "BF16"}, 5));
  ASSERT_OK(Load(tiny));
  for (const auto& [edit, message] : cases) {
    TinyModel model = tiny;
    edit(&model);
    EXPECT_THAT(Load(model).status(), StatusIs(kInvalid, HasSubstr(message)));
  }
}

TEST(Fp8ModelTest, WeightsWithoutAPlaceAreRefused) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), 1.2e5f}) {
    TinyModel tiny = MakeTinyModel({}, 5);
    tiny.tensors[kDown].values[85] = value;
    EXPECT_THAT(
        Load(tiny, WeightFormat::kFp8).status(),
        StatusIs(kInvalid,
                 HasSubstr("tensor model.layers.1.mlp.down_proj.weight: row 2 "
                           "has a number that e4m3 cannot hold in column 5: it "
                           "must be finite and less than 114688 in magnitude, "
                           "got ")));
  }
}

}  // namespace
}  // namespace espalier
