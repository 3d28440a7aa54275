// Values of the request format and of traces, read from JSON. Every error names
// the field and shows the value: kInvalidArgument, "num_beams must be an
// integer, got \"4\"".
//
// Lists and optional values are read by the Read of what they hold: one of
// these, or one in this namespace that takes a type of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/shared_list.h"
#include "base/status.h"
#include "request/generation_params.h"

namespace espalier {

// Returns the error for a `value` that `field` does not accept.
absl::Status WrongType(std::string_view field, std::string_view wanted,
                       const json::value& value);
// As above, for a value given as JSON text.
absl::Status WrongType(std::string_view field, std::string_view wanted,
                       std::string_view text);

// Returns the name of a part of a value: "speculate.method", or "--speculate:
// method" for a command-line option, which has no fields.
std::string NameOfPart(std::string_view field, std::string_view key);

// True if `text` is an integer beyond int64_t. Every number of that size is an
// integer.
bool IsBeyondIntegers(std::string_view text);

// Sets `*out` to `value` and returns true if the type matches.
bool Take(const json::value& value, bool* out);
bool Take(const json::value& value, int64_t* out);
bool Take(const json::value& value, uint64_t* out);
bool Take(const json::value& value, double* out);
bool Take(const json::value& value, std::string* out);
bool Take(const json::value& value, json::object* out);
// false, true or "never".
bool Take(const json::value& value, EarlyStopping* out);
// "power" or "wu".
bool Take(const json::value& value, LengthPenaltyForm* out);
// "raw_logprobs" or "processed_logprobs".
bool Take(const json::value& value, LogprobsMode* out);
// "ngram", "suffix", "constraint", "draft" or "off".
bool Take(const json::value& value, SpeculationMethod* out);
// "rejection" or "coupled".
bool Take(const json::value& value, SpeculationMode* out);

// Describes the values that Take accepts, for error messages.
std::string_view Wanted(const bool*);
std::string_view Wanted(const int64_t*);
std::string_view Wanted(const uint64_t*);
std::string_view Wanted(const double*);
std::string_view Wanted(const std::string*);
std::string_view Wanted(const json::object*);
std::string_view Wanted(const EarlyStopping*);
std::string_view Wanted(const LengthPenaltyForm*);
std::string_view Wanted(const LogprobsMode*);
std::string_view Wanted(const SpeculationMethod*);
std::string_view Wanted(const SpeculationMode*);

template <typename T>
concept JsonScalar = requires(const json::value& value, T* out) {
  Take(value, out);
  Wanted(out);
};

template <JsonScalar T>
absl::Status Read(std::string_view field, const json::value& value, T* out) {
  if (Take(value, out)) return absl::OkStatus();
  return WrongType(field, Wanted(out), value);
}
absl::Status Read(std::string_view field, const json::value& value,
                  int32_t* out);
absl::Status Read(std::string_view field, const json::value& value, float* out);
// Parses an object's key as an id in canonical form: no sign and no leading
// zeros, so that distinct keys are distinct ids.
std::optional<int64_t> IdOfKey(std::string_view key);
absl::Status WrongKey(std::string_view field, std::string_view key);

inline constexpr std::string_view kBiasesWanted =
    "an object of token ids and biases";
inline constexpr std::string_view kIdsWanted =
    "a token id or a list of token ids";
inline constexpr std::string_view kSequenceBiasWanted =
    "a list of token ids and a bias, [[7, 8], -1.5]";
inline constexpr std::string_view kLengthDecayWanted =
    "a list of an integer and a number, [start_index, factor]";
inline constexpr std::string_view kTextsWanted =
    "a string or a list of strings";

template <typename Tag, typename Rep>
absl::Status Read(std::string_view field, const json::value& value,
                  Id<Tag, Rep>* out) {
  return Read(field, value, &out->value);
}

template <typename T>
absl::Status Read(std::string_view field, const json::value& value,
                  std::vector<T>* out) {
  if (!value.is_array()) return WrongType(field, "a list", value);
  const json::array& list = value.get_array();
  out->resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    // To name an element costs far more than to read it.
    if (Read(field, list[i], &(*out)[i]).ok()) continue;
    return Read(Concat(field, "[", i, "]"), list[i], &(*out)[i]);
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Read(std::string_view field, const json::value& value,
                  std::optional<T>* out) {
  return Read(field, value, &out->emplace());
}

// Json is a json::value or a JsonText.
template <typename T, typename Json>
absl::Status Read(std::string_view field, const Json& json,
                  SharedList<T>* out) {
  std::vector<T> items;
  RETURN_IF_ERROR(Read(field, json, &items));
  *out = SharedList<T>(std::move(items));
  return absl::OkStatus();
}

}  // namespace espalier
