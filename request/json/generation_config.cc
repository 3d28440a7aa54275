#include "request/json/generation_config.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/field_error.h"
#include "base/file.h"
#include "base/spelling.h"
#include "base/status.h"
#include "request/param_checks.h"
#include "request/param_fields.h"
#include "request/read_json.h"

namespace espalier {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;

// Fields that change results, and their neutral number, if they have one; null,
// false and nothing in a list or object are neutral, too.
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
struct UnsupportedField {
  std::string_view name;
  double neutral = kNone;
};
constexpr UnsupportedField kUnsupported[] = {
    {"constraints"},
    {"dola_layers"},
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"force_words_ids"},
    {"guidance_scale", 1},
    {"max_time"},
    {"penalty_alpha", 0},
    {"token_healing"},
    {"top_h"},
    {"watermarking_config"},
};

// max_length that transformers assumes if none is set.
constexpr int64_t kLibraryMaxLength = 20;

// First token of the decoder of an encoder-decoder: a property of the model.
constexpr std::string_view kDecoderStart = "decoder_start_token_id";

bool IsNeutral(const json::value& value, double neutral) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.get_bool();
  if (value.is_array()) return value.get_array().empty();
  if (value.is_object()) return value.get_object().empty();
  return value.is_number() && value.to_number<double>() == neutral;
}

// True if `name`, which no table has, is a misspelling of a field in one.
// bos_token_id is excluded, though it is close to another name.
bool IsMisspelt(std::string_view name) {
  constexpr size_t kLongName = 8, kMaxName = 64;
  if (name == "bos_token_id" || name.size() > kMaxName) return false;
  const size_t most = name.size() < kLongName ? 1 : 2;
  const auto is_near = [&](std::string_view known) {
    return EditDistance(name, known) <= most;
  };
  return std::ranges::any_of(DefaultNames(), is_near, &DefaultName::name) ||
         std::ranges::any_of(kUnsupported, is_near, &UnsupportedField::name) ||
         is_near(kDecoderStart);
}

bool IsKnown(std::string_view name) {
  const std::vector<DefaultName> taken = DefaultNames();
  return std::ranges::find(taken, name, &DefaultName::name) != taken.end() ||
         std::ranges::find(kUnsupported, name, &UnsupportedField::name) !=
             std::end(kUnsupported) ||
         name == kDecoderStart;
}

// Null if the field is missing, null, or {}, which is no bias of sequences.
const json::value* Find(const json::object& config, std::string_view name) {
  const json::value* const value = config.if_contains(name);
  if (value == nullptr || value->is_null()) return nullptr;
  const bool is_empty = value->is_object() && value->get_object().empty();
  return is_empty ? nullptr : value;
}

void Add(std::string_view name, const json::value& value, NamedValues* fields) {
  fields->emplace_back(name, WriteJson(value));
}

// A length of prompt and generated tokens together, which counts without
// `instead`, that of generated ones.
struct LengthField {
  std::string_view name;
  std::string_view instead;
  int64_t low;
  int64_t neutral;
  std::optional<int64_t> GenerationDefaults::*member;
};
constexpr LengthField kLengths[] = {
    {"max_length", "max_new_tokens", 1, kLibraryMaxLength,
     &GenerationDefaults::max_length},
    {"min_length", "min_new_tokens", 0, 0, &GenerationDefaults::min_length},
};

absl::Status ReadLength(const json::object& config, const LengthField& field,
                        const json::value& value,
                        GenerationDefaults* defaults) {
  int64_t number = 0;
  RETURN_IF_ERROR(Read(field.name, value, &number));
  RETURN_IF_ERROR(CheckAtLeast(field.name, number, field.low));
  if (number == field.neutral || Find(config, field.instead) != nullptr) {
    return absl::OkStatus();
  }
  defaults->*field.member = number;
  Add(field.name, value, &defaults->fields);
  return absl::OkStatus();
}

absl::Status ReadParam(const DefaultName& field, const json::value& value,
                       GenerationDefaults* defaults) {
  const GenerationParams before = defaults->params;
  RETURN_IF_ERROR(ParamNamed(field.param)
                      .member.Read(field.name, value, &defaults->params));
  if (defaults->params != before) Add(field.name, value, &defaults->fields);
  return absl::OkStatus();
}

absl::Status ReadInto(const json::object& config, DefaultsOf file,
                      GenerationDefaults* defaults) {
  for (const DefaultName& field : DefaultNames()) {
    const json::value* const value = Find(config, field.name);
    const bool is_models =
        field.name == "eos_token_id" && file != DefaultsOf::kGiven;
    if (value == nullptr || is_models) continue;
    const auto* const length =
        std::ranges::find(kLengths, field.name, &LengthField::name);
    RETURN_IF_ERROR(length == std::end(kLengths)
                        ? ReadParam(field, *value, defaults)
                        : ReadLength(config, *length, *value, defaults));
  }
  for (const UnsupportedField& field : kUnsupported) {
    const json::value* const value = Find(config, field.name);
    if (value == nullptr || IsNeutral(*value, field.neutral)) continue;
    Add(field.name, *value, &defaults->unsupported);
  }
  for (const auto& [key, value] : config) {
    if (file == DefaultsOf::kModelConfig) break;  // num_heads is no num_beams
    const std::string_view name(key.data(), key.size());
    if (IsKnown(name) || IsNeutral(value, kNone) || !IsMisspelt(name)) continue;
    Add(name, value, &defaults->unsupported);
  }
  if (const json::value* start = Find(config, kDecoderStart)) {
    defaults->decoder_start_token_id = WriteJson(*start);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<json::object> ReadConfigObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  absl::StatusOr<json::value> value = ParsePythonJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return InvalidField(FieldName{path}, ": must be a JSON object");
  }
  return std::move(value->get_object());
}

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(
    const json::object& config, const std::string& path, DefaultsOf file) {
  GenerationDefaults defaults;
  defaults.path = path;
  RETURN_IF_ERROR(Annotate(ReadInto(config, file, &defaults), path));
  return defaults;
}

}  // namespace espalier
