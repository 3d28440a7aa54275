#include "request/read_json_text.h"

#include <algorithm>
#include <array>
#include <boost/json/parser.hpp>
#include <charconv>

#include "base/check.h"
#include "base/field_error.h"

namespace espalier {
namespace {

// Goes through the integers of a list, and stops at what is none.
class Integers {
 public:
  explicit Integers(std::string_view list)
      : at_(list.data() + 1), end_(list.data() + list.size()) {}

  // The next; false at the end of the list, or at another value.
  bool Next(int64_t* out) {
    while (IsBetween(*at_)) ++at_;
    const auto [rest, error] = std::from_chars(at_, end_, *out);
    // 1.5 and 1e3 begin like integers; a list ends after its values.
    if (error != std::errc() || !(IsBetween(*rest) || *rest == ']')) {
      return false;
    }
    at_ = rest;
    return true;
  }

  // Returns the text from the element that Next stopped at on; "]" at the end.
  std::string_view rest() const { return {at_, size_t(end_ - at_)}; }

  // True for characters between elements.
  static bool IsBetween(char c) {
    return c == ' ' || c == ',' || c == '\n' || c == '\t' || c == '\r';
  }

 private:
  const char* at_;
  const char* const end_;
};

// Parses many small numbers without making anything anew for each.
class NumberReader {
 public:
  bool Read(std::string_view text, double* out) {
    const char first = text.front();
    if (first != '-' && (first < '0' || first > '9')) return false;
    parser_.reset();
    json::error_code error;
    parser_.write(text.data(), text.size(), error);
    CHECK(!error) << "not checked";
    return Take(parser_.release(), out);
  }

 private:
  json::parser parser_;
};

// The two values of a list; none if it has another number.
std::optional<std::array<JsonText, 2>> PairOf(const JsonText& json) {
  if (!json.is_array()) return std::nullopt;
  std::array<JsonText, 2> pair;
  size_t count = 0;
  for (JsonItems items(json.text); items.Next(); ++count) {
    if (count == pair.size()) return std::nullopt;
    pair[count] = {items.value()};
  }
  return count == pair.size() ? std::optional(pair) : std::nullopt;
}

// Keeps the last of each duplicate key.
void KeepLast(std::vector<std::pair<int64_t, double>>* biases) {
  std::vector<std::pair<int64_t, size_t>> places;
  for (const auto& [id, bias] : *biases) places.push_back({id, places.size()});
  std::sort(places.begin(), places.end());
  std::vector<size_t> last;
  for (size_t i = 0; i < places.size(); ++i) {
    const bool comes_again =
        i + 1 < places.size() && places[i + 1].first == places[i].first;
    if (!comes_again) last.push_back(places[i].second);
  }
  if (last.size() == biases->size()) return;
  std::sort(last.begin(), last.end());
  for (size_t i = 0; i < last.size(); ++i) (*biases)[i] = (*biases)[last[i]];
  biases->resize(last.size());
}

}  // namespace

absl::StatusOr<json::value> ReadAny(std::string_view field,
                                    const JsonText& json) {
  if (json.max_members > kMaxMembers) {
    return InvalidField(FieldName{field}, " must have no object of more than ",
                        kMaxMembers, " members",
                        Got("one of ", json.max_members));
  }
  return ParseChecked(json.text);
}

absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<int64_t>* out) {
  if (!json.is_array()) return WrongType(field, "a list", json.text);
  out->clear();
  Integers integers(json.text);
  for (int64_t id = 0; integers.Next(&id);) out->push_back(id);
  const std::string_view rest = integers.rest();
  if (rest == "]") return absl::OkStatus();
  return WrongType(Concat(field, "[", out->size(), "]"), Wanted(out->data()),
                   FirstValue(rest));
}

absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<std::vector<int64_t>>* out) {
  if (!json.is_array()) return WrongType(field, "a list", json.text);
  out->clear();
  std::vector<int64_t> ids;  // grows once for all lists
  std::string_view rest = json.text.substr(1);
  while (true) {
    while (Integers::IsBetween(rest.front())) rest.remove_prefix(1);
    if (rest.front() == ']') return absl::OkStatus();
    if (rest.front() != '[') {
      return WrongType(Concat(field, "[", out->size(), "]"), "a list",
                       FirstValue(rest));
    }
    ids.clear();
    Integers integers(rest);
    for (int64_t id = 0; integers.Next(&id);) ids.push_back(id);
    rest = integers.rest();
    if (rest.front() != ']') {
      return WrongType(Concat(field, "[", out->size(), "][", ids.size(), "]"),
                       Wanted(ids.data()), FirstValue(rest));
    }
    out->push_back(ids);
    rest.remove_prefix(1);
  }
}

absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<std::pair<int64_t, double>>* out) {
  if (!json.is_object()) return WrongType(field, kBiasesWanted, json.text);
  out->clear();
  NumberReader numbers;
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    const std::optional<int64_t> id = IdOfKey(key);
    if (!id) return WrongKey(field, key);
    out->emplace_back(*id, 0.0);
    double* const bias = &out->back().second;
    if (numbers.Read(items.value(), bias)) continue;
    return WrongType(Concat(field, " of token ", *id), Wanted(bias),
                     items.value());
  }
  KeepLast(out);
  return absl::OkStatus();
}

absl::Status Read(std::string_view field, const JsonText& json,
                  SequenceBias* out) {
  const auto pair = PairOf(json);
  if (!pair) return WrongType(field, kSequenceBiasWanted, json.text);
  // To name the two costs more than to read them.
  if (Read(field, (*pair)[0], &out->tokens).ok() &&
      Read(field, (*pair)[1], &out->bias).ok()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Read(Concat(field, "[0]"), (*pair)[0], &out->tokens));
  return Read(Concat(field, "[1]"), (*pair)[1], &out->bias);
}

absl::Status Read(std::string_view field, const JsonText& json,
                  LengthDecay* out) {
  const auto pair = PairOf(json);
  if (!pair) return WrongType(field, kLengthDecayWanted, json.text);
  RETURN_IF_ERROR(Read(Concat(field, "[0]"), (*pair)[0], &out->start_index));
  return Read(Concat(field, "[1]"), (*pair)[1], &out->factor);
}

absl::Status ReadIds(std::string_view field, const JsonText& json,
                     std::vector<int64_t>* out) {
  if (json.is_array()) return Read(field, json, out);
  int64_t id = 0;
  if (!Read(field, json, &id).ok()) {
    return WrongType(field, kIdsWanted, json.text);
  }
  *out = {id};
  return absl::OkStatus();
}

absl::Status ReadTexts(std::string_view field, const JsonText& json,
                       std::vector<std::string>* out) {
  if (json.is_array()) return Read(field, json, out);
  if (!json.is_string()) return WrongType(field, kTextsWanted, json.text);
  *out = {Unquoted(json.text)};
  return absl::OkStatus();
}

}  // namespace espalier
