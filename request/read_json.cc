#include "request/read_json.h"

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/field_error.h"

namespace espalier {
namespace {

// Sets `*out` to the one of `values` with this name.
template <typename T>
bool TakeNamed(const json::value& value, std::initializer_list<T> values,
               T* out) {
  if (!value.is_string()) return false;
  for (const T candidate : values) {
    if (value.get_string() != NameOf(candidate)) continue;
    *out = candidate;
    return true;
  }
  return false;
}

constexpr std::string_view kIntegerWanted = "an integer";
constexpr std::string_view kNumberWanted = "a number";

}  // namespace

std::string NameOfPart(std::string_view field, std::string_view key) {
  return Concat(field, field.starts_with("--") ? ": " : ".", key);
}

bool IsBeyondIntegers(std::string_view text) {
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  const auto read = std::from_chars(text.data(), end, integer);
  if (read.ec == std::errc() && read.ptr == end) return false;
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end && std::abs(number) >= 0x1p63;
}

absl::Status WrongType(std::string_view field, std::string_view wanted,
                       const json::value& value) {
  if (value.is_double() && !std::isfinite(value.get_double())) {
    return InvalidField(FieldName{field}, " must be ", wanted,
                        wanted == kNumberWanted ? " within float64" : "",
                        Got("a number beyond float64"));
  }
  return WrongType(field, wanted, std::string_view(WriteJson(value)));
}

absl::Status WrongType(std::string_view field, std::string_view wanted,
                       std::string_view text) {
  if (wanted == kIntegerWanted && IsBeyondIntegers(text)) {
    return WrongType(field, "an integer in [-2^63, 2^63)", text);
  }
  // A number that was refused as a number exceeds float64.
  const bool is_too_large =
      wanted == kNumberWanted &&
      (text.front() == '-' || ('0' <= text.front() && text.front() <= '9'));
  return InvalidField(FieldName{field}, " must be ", wanted,
                      is_too_large ? " within float64" : "", Got(Shown(text)));
}

bool Take(const json::value& value, bool* out) {
  if (!value.is_bool()) return false;
  *out = value.get_bool();
  return true;
}
std::string_view Wanted(const bool*) { return "true or false"; }

bool Take(const json::value& value, int64_t* out) {
  if (!value.is_int64()) return false;
  *out = value.get_int64();
  return true;
}
std::string_view Wanted(const int64_t*) { return kIntegerWanted; }

bool Take(const json::value& value, uint64_t* out) {
  const bool is_natural = value.is_int64() && value.get_int64() >= 0;
  if (!value.is_uint64() && !is_natural) return false;
  *out = value.to_number<uint64_t>();
  return true;
}
std::string_view Wanted(const uint64_t*) { return "an integer in [0, 2^64)"; }

bool Take(const json::value& value, double* out) {
  if (!value.is_number()) return false;
  *out = value.to_number<double>();
  return std::isfinite(*out);
}
std::string_view Wanted(const double*) { return kNumberWanted; }

bool Take(const json::value& value, std::string* out) {
  if (!value.is_string()) return false;
  *out = value.get_string();
  return true;
}
std::string_view Wanted(const std::string*) { return "a string"; }

bool Take(const json::value& value, json::object* out) {
  if (!value.is_object()) return false;
  *out = value.get_object();
  return true;
}
std::string_view Wanted(const json::object*) { return "an object"; }

bool Take(const json::value& value, EarlyStopping* out) {
  if (value.is_bool()) {
    *out = value.get_bool() ? EarlyStopping::kTrue : EarlyStopping::kFalse;
    return true;
  }
  if (!value.is_string() || value.get_string() != "never") return false;
  *out = EarlyStopping::kNever;
  return true;
}
std::string_view Wanted(const EarlyStopping*) {
  return "true, false or \"never\"";
}

bool Take(const json::value& value, LengthPenaltyForm* out) {
  if (!value.is_string()) return false;
  const bool is_power = value.get_string() == "power";
  if (!is_power && value.get_string() != "wu") return false;
  *out = is_power ? LengthPenaltyForm::kPower : LengthPenaltyForm::kWu;
  return true;
}
std::string_view Wanted(const LengthPenaltyForm*) {
  return "\"power\" or \"wu\"";
}

bool Take(const json::value& value, LogprobsMode* out) {
  return TakeNamed(value, {LogprobsMode::kRaw, LogprobsMode::kProcessed}, out);
}
std::string_view Wanted(const LogprobsMode*) {
  return "\"raw_logprobs\" or \"processed_logprobs\"";
}

bool Take(const json::value& value, SpeculationMethod* out) {
  using enum SpeculationMethod;
  return TakeNamed(value, {kNgram, kSuffix, kConstraint, kDraft, kNone}, out);
}
std::string_view Wanted(const SpeculationMethod*) {
  return "\"ngram\", \"suffix\", \"constraint\", \"draft\" or \"off\"";
}

bool Take(const json::value& value, SpeculationMode* out) {
  using enum SpeculationMode;
  return TakeNamed(value, {kRejection, kCoupled}, out);
}
std::string_view Wanted(const SpeculationMode*) {
  return "\"rejection\" or \"coupled\"";
}

absl::Status Read(std::string_view field, const json::value& value,
                  int32_t* out) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  int64_t number = 0;
  RETURN_IF_ERROR(Read(field, value, &number));
  if (number < kMin || number > kMax) {
    return InvalidField(FieldName{field}, " must be in [", kMin, ", ", kMax,
                        "]", Got(number));
  }
  *out = static_cast<int32_t>(number);
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const json::value& value,
                  float* out) {
  double number = 0;
  RETURN_IF_ERROR(Read(field, value, &number));
  *out = static_cast<float>(number);
  return absl::OkStatus();
}

std::optional<int64_t> IdOfKey(std::string_view key) {
  int64_t id = 0;
  const char* end = key.data() + key.size();
  const auto parsed = std::from_chars(key.data(), end, id);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (std::to_string(id) != key) return std::nullopt;
  return id;
}

absl::Status WrongKey(std::string_view field, std::string_view key) {
  return InvalidField(FieldName{field}, " must have token ids as keys",
                      Got(ShownInQuotes(key)));
}

}  // namespace espalier
