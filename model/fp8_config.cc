#include "model/fp8_config.h"

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

// Returns the field, or null if it is missing, JSON null or {}.
const json::value* FindPart(const json::object& json, std::string_view key) {
  const json::value* value = FindField(json, key);
  return value == nullptr || *value == json::object() ? nullptr : value;
}

absl::Status CheckAbsent(const json::object& json,
                         std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const json::value* value = FindPart(json, key);
    if (value == nullptr) continue;
    return InvalidArgument(key, " is not supported, got ", Shown(value));
  }
  return absl::OkStatus();
}

// A missing one is `fallback`; null: an error.
absl::Status CheckValue(const json::object& json, std::string_view key,
                        std::initializer_list<json::value> allowed,
                        const json::value& fallback) {
  const json::value* value = FindField(json, key);
  if (value == nullptr && !fallback.is_null()) value = &fallback;
  std::string names;
  for (const json::value& name : allowed) {
    if (value != nullptr && *value == name) return absl::OkStatus();
    names += Concat(names.empty() ? "" : " or ", WriteJson(name));
  }
  return InvalidArgument(key, " must be ", names, ", got ", Shown(value));
}

absl::StatusOr<const json::object*> ReadPart(const json::object& json,
                                             std::string_view key) {
  const json::value* value = FindField(json, key);
  if (value == nullptr || !value->is_object()) {
    return InvalidArgument(key, " must be an object, got ", Shown(value));
  }
  return value->if_object();
}

absl::Status CheckWeights(const json::object& weights) {
  RETURN_IF_ERROR(CheckValue(weights, "type", {"float"}, nullptr));
  RETURN_IF_ERROR(CheckValue(weights, "num_bits", {8}, nullptr));
  RETURN_IF_ERROR(
      CheckValue(weights, "strategy", {"channel", "tensor"}, nullptr));
  RETURN_IF_ERROR(CheckValue(weights, "symmetric", {true}, true));
  RETURN_IF_ERROR(CheckValue(weights, "dynamic", {false}, false));
  return CheckAbsent(weights, {"group_size", "block_structure", "actorder"});
}

absl::Status CheckGroup(const json::object& group) {
  RETURN_IF_ERROR(CheckValue(group, "format",
                             {"float-quantized", "naive-quantized"},
                             "float-quantized"));
  ASSIGN_OR_RETURN(const json::object* weights, ReadPart(group, "weights"));
  RETURN_IF_ERROR(Annotate(CheckWeights(*weights), "weights"));
  RETURN_IF_ERROR(CheckAbsent(group, {"output_activations"}));
  if (FindPart(group, "input_activations") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const json::object* inputs,
                   ReadPart(group, "input_activations"));
  return Annotate(CheckValue(*inputs, "dynamic", {true}, false),
                  "input_activations");
}

absl::Status CheckCompressedTensors(const json::object& json) {
  RETURN_IF_ERROR(CheckValue(json, "format",
                             {"float-quantized", "naive-quantized"}, nullptr));
  RETURN_IF_ERROR(
      CheckValue(json, "quantization_status", {"compressed"}, "compressed"));
  RETURN_IF_ERROR(CheckAbsent(
      json, {"kv_cache_scheme", "sparsity_config", "transform_config"}));
  ASSIGN_OR_RETURN(const json::object* groups, ReadPart(json, "config_groups"));
  for (const auto& [name, value] : *groups) {
    const std::string_view group_name = name;
    ASSIGN_OR_RETURN(const json::object* group, ReadPart(*groups, group_name));
    RETURN_IF_ERROR(Annotate(CheckGroup(*group), group_name));
  }
  return absl::OkStatus();
}

absl::Status CheckFp8(const json::object& json) {
  RETURN_IF_ERROR(CheckAbsent(json, {"weight_block_size", "kv_cache_scheme"}));
  RETURN_IF_ERROR(CheckValue(json, "fmt", {"e4m3"}, "e4m3"));
  return CheckValue(json, "activation_scheme", {"dynamic"}, "dynamic");
}

absl::Status CheckMethod(const json::object& json) {
  const absl::Status method =
      CheckValue(json, "quant_method", {"compressed-tensors", "fp8"}, nullptr);
  if (!method.ok()) {
    return InvalidArgument(
        Message(method), "; give the model as it was before it was quantised: ",
        "the option weights (int8, int4 or fp8) quantises it as it is loaded");
  }
  return *FindField(json, "quant_method") == "fp8"
             ? CheckFp8(json)
             : CheckCompressedTensors(json);
}

}  // namespace

absl::StatusOr<bool> ReadFp8Config(const json::object& config) {
  constexpr std::string_view kField = "quantization_config";
  if (FindField(config, kField) == nullptr) return false;
  ASSIGN_OR_RETURN(const json::object* json, ReadPart(config, kField));
  RETURN_IF_ERROR(Annotate(CheckMethod(*json), kField));
  return true;
}

}  // namespace espalier
