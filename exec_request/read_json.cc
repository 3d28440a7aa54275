#include "exec_request/read_json.h"

#include <charconv>
#include <limits>

namespace espalier {
namespace {

// A key as an id, if it is one as JSON would write it: no sign, no zeros in
// front, so that no two keys are the same id.
std::optional<int64_t> IdOf(std::string_view key) {
  int64_t id = 0;
  const char* end = key.data() + key.size();
  const auto parsed = std::from_chars(key.data(), end, id);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (std::to_string(id) != key) return std::nullopt;
  return id;
}

}  // namespace

absl::Status WrongType(std::string_view field, std::string_view wanted,
                       const json::value& value) {
  return InvalidArgument(field, " must be ", wanted, ", got ", Shown(&value));
}

absl::Status Read(std::string_view field, const json::value& value, bool* out) {
  if (!value.is_bool()) return WrongType(field, "true or false", value);
  *out = value.get_bool();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  int64_t* out) {
  if (!value.is_int64()) return WrongType(field, "an integer", value);
  *out = value.get_int64();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  int32_t* out) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  int64_t number = 0;
  RETURN_IF_ERROR(Read(field, value, &number));
  if (number < kMin || number > kMax) {
    return InvalidArgument(field, " must be in [", kMin, ", ", kMax, "], got ",
                           number);
  }
  *out = static_cast<int32_t>(number);
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  uint64_t* out) {
  if (value.is_uint64()) {
    *out = value.get_uint64();
    return absl::OkStatus();
  }
  if (!value.is_int64() || value.get_int64() < 0) {
    return WrongType(field, "an integer in [0, 2^64)", value);
  }
  *out = value.get_int64();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  double* out) {
  if (!value.is_number()) return WrongType(field, "a number", value);
  *out = value.to_number<double>();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  float* out) {
  double number = 0;
  RETURN_IF_ERROR(Read(field, value, &number));
  *out = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  std::string* out) {
  if (!value.is_string()) return WrongType(field, "a string", value);
  *out = value.get_string();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  json::object* out) {
  if (!value.is_object()) return WrongType(field, "an object", value);
  *out = value.get_object();
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  EarlyStopping* out) {
  if (value.is_bool()) {
    *out = value.get_bool() ? EarlyStopping::kTrue : EarlyStopping::kFalse;
    return absl::OkStatus();
  }
  if (value.is_string() && value.get_string() == "never") {
    *out = EarlyStopping::kNever;
    return absl::OkStatus();
  }
  return WrongType(field, "true, false or \"never\"", value);
}

absl::Status Read(std::string_view field, const json::value& value,
                  LengthPenaltyForm* out) {
  if (value.is_string() && value.get_string() == "power") {
    *out = LengthPenaltyForm::kPower;
    return absl::OkStatus();
  }
  if (value.is_string() && value.get_string() == "wu") {
    *out = LengthPenaltyForm::kWu;
    return absl::OkStatus();
  }
  return WrongType(field, "\"power\" or \"wu\"", value);
}

absl::Status Read(std::string_view field, const json::value& value,
                  std::vector<std::pair<int64_t, double>>* out) {
  if (!value.is_object()) {
    return WrongType(field, "an object of token ids and biases", value);
  }
  out->clear();
  for (const auto& [key, bias] : value.get_object()) {
    const std::optional<int64_t> id = IdOf(key);
    if (!id) {
      return InvalidArgument(field, " must have token ids as keys, got ",
                             ShownInQuotes(key));
    }
    out->emplace_back(*id, 0.0);
    RETURN_IF_ERROR(
        Read(Concat(field, " of token ", *id), bias, &out->back().second));
  }
  return absl::OkStatus();
}

absl::Status ReadIds(std::string_view field, const json::value& value,
                     std::vector<int64_t>* out) {
  if (value.is_array()) return Read(field, value, out);
  if (!value.is_int64()) {
    return WrongType(field, "a token id or a list of token ids", value);
  }
  *out = {value.get_int64()};
  return absl::OkStatus();
}

absl::Status ReadTexts(std::string_view field, const json::value& value,
                       std::vector<std::string>* out) {
  if (value.is_array()) return Read(field, value, out);
  if (!value.is_string()) {
    return WrongType(field, "a string or a list of strings", value);
  }
  *out = {std::string(value.get_string())};
  return absl::OkStatus();
}

}  // namespace espalier
