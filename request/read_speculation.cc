#include "request/read_speculation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "base/field_error.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/status.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier {
namespace {

constexpr std::string_view kSpeculateWanted =
    "\"off\", \"METHOD[:NUM_TOKENS[:MODE]]\" or an object";
constexpr std::array<std::string_view, 3> kKeys = {"method", "num_tokens",
                                                   "mode"};

// Returns a hint for a key that vLLM's speculative_config has beside "method".
std::string HintAtKey(std::string_view key) {
  if (key == "num_speculative_tokens") return "; did you mean num_tokens?";
  if (key != "model") return DidYouMean(key, kKeys);
  return "; the draft model is loaded with the target, and \"draft\" is the "
         "method that drafts by it";
}

// Values of the keys; of a key given twice the last.
using Fields = std::array<std::optional<JsonText>, kKeys.size()>;

absl::Status SetField(std::string_view field, std::string_view key,
                      const JsonText& value, Fields* fields) {
  const auto found = std::ranges::find(kKeys, key);
  if (found == kKeys.end()) {
    return InvalidField(FieldName{field}, " must have no field ",
                        ShownInQuotes(key), HintAtKey(key));
  }
  std::optional<JsonText>& place = (*fields)[found - kKeys.begin()];
  place.reset();  // null is as if it were not there
  if (!value.is_null()) place = value;
  return absl::OkStatus();
}

absl::Status BesideOff(std::string_view field, std::string_view key,
                       const JsonText& json) {
  return WrongType(NameOfPart(field, key), "left out with method \"off\"",
                   json.text);
}

// A text of a number that is none of int64_t, too.
absl::Status WrongNumTokens(std::string_view field, std::string_view text) {
  return WrongType(NameOfPart(field, "num_tokens"),
                   Concat("an integer in [1, ", kMaxDraftTokens, "]"), text);
}

absl::Status ReadFields(std::string_view field, const Fields& fields,
                        std::optional<SpeculationParams>* out) {
  const auto& [method, num_tokens, mode] = fields;
  SpeculationParams params;
  if (!method) {
    return InvalidField(FieldName{field}, " must have a method, ",
                        Wanted(&params.method), Got("none"));
  }
  RETURN_IF_ERROR(Read(NameOfPart(field, "method"), *method, &params.method));
  for (size_t i = 1; i < kKeys.size(); ++i) {
    if (params.method != SpeculationMethod::kNone || !fields[i]) continue;
    return BesideOff(field, kKeys[i], *fields[i]);
  }
  if (num_tokens && IsBeyondIntegers(num_tokens->text)) {
    return WrongNumTokens(field, num_tokens->text);
  }
  if (num_tokens) {
    RETURN_IF_ERROR(
        Read(NameOfPart(field, "num_tokens"), *num_tokens, &params.num_tokens));
  }
  if (mode) {
    RETURN_IF_ERROR(Read(NameOfPart(field, "mode"), *mode, &params.mode));
  }
  *out = params;
  return absl::OkStatus();
}

// A number as JSON has it, for the field to judge.
json::value NumberOrText(std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && rest == end) return number;
  return json::value(text);
}

// METHOD[:NUM_TOKENS[:MODE]].
absl::Status ReadShort(std::string_view field, std::string_view text,
                       std::optional<SpeculationParams>* out) {
  Fields fields;
  std::array<std::string, kKeys.size()> parts;  // JSON that `fields` view
  size_t begin = 0;
  for (size_t i = 0; begin != text.npos; ++i) {
    if (i == fields.size()) {
      return WrongType(field, kSpeculateWanted, json::value(text));
    }
    const size_t end = text.find(':', begin);
    const std::string_view part = text.substr(begin, end - begin);
    // ngram::coupled leaves it at its default.
    const bool is_left_out = i == 1 && part.empty() && end != text.npos;
    if (i == 1 && IsBeyondIntegers(part)) return WrongNumTokens(field, part);
    if (!is_left_out) {
      parts[i] = WriteJson(i == 1 ? NumberOrText(part) : json::value(part));
      fields[i] = JsonText{parts[i]};
    }
    begin = end == text.npos ? end : end + 1;
  }
  return ReadFields(field, fields, out);
}

// Reads a value that is neither an object nor text for the other readers and
// sets `*status`; returns false for any other value.
bool ReadPlain(std::string_view field, const json::value& value,
               absl::Status* status, std::optional<SpeculationParams>* out) {
  if (value.is_string()) {
    *status = ReadShort(field, std::string_view(value.get_string()), out);
  } else if (value.is_bool() && !value.get_bool()) {
    out->emplace();
  } else {
    return false;
  }
  return true;
}

}  // namespace

absl::Status ReadSpeculation(std::string_view field, const JsonText& json,
                             std::optional<SpeculationParams>* out) {
  if (!json.is_object()) {
    absl::Status status;
    if (!json.is_array() &&
        ReadPlain(field, ParseChecked(json.text), &status, out)) {
      return status;
    }
    return WrongType(field, kSpeculateWanted, json.text);
  }
  Fields fields;
  for (JsonItems items(json.text); items.Next();) {
    RETURN_IF_ERROR(
        SetField(field, Unquoted(items.key()), {items.value()}, &fields));
  }
  return ReadFields(field, fields, out);
}

}  // namespace espalier
