#include "constrain/json_schema_bounds.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "constrain/json_keywords.h"

namespace espalier {
namespace {

// Returns the steps of looking each of `texts` up in a set: its comparisons.
int64_t StepsOfLookups(const std::set<std::string>& texts,
                       const std::set<std::string>& set) {
  return static_cast<int64_t>(texts.size() * std::bit_width(set.size()));
}

// Returns the steps of a copy, in proportion to its memory.
int64_t StepsOfCopy(const std::set<std::string>& texts) {
  constexpr size_t kStepsOfText = 16;
  constexpr size_t kBytesOfStep = 4;
  size_t steps = 0;
  for (const std::string& text : texts) {
    steps += kStepsOfText + text.size() / kBytesOfStep;
  }
  return static_cast<int64_t>(steps);
}

// Returns the bounds of values that are among `list`.
JsonSchemaBounds::Bounds BoundsOfConstants(const json::array& list) {
  JsonSchemaBounds::Bounds bounds = {.types = 0,
                                     .values = std::set<std::string>()};
  for (const json::value& one : list) {
    bounds.types |= BitOf(TypeOf(one));
    bounds.values->insert(CanonicalJson(one));
  }
  return bounds;
}

uint8_t TypesOfNames(const json::array& names) {
  uint8_t types = 0;
  for (const json::value& name : names) {
    if (name.is_string()) types |= TypesOfName(name.get_string());
  }
  return types;
}

}  // namespace

absl::Status JsonSchemaBounds::Intersect(const Bounds& other, Bounds* bounds) {
  bounds->types &= other.types;
  if (!other.values) return absl::OkStatus();
  if (!bounds->values) {
    RETURN_IF_ERROR(budget_.Take(StepsOfCopy(*other.values)));
    bounds->values = other.values;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(budget_.Take(StepsOfLookups(*bounds->values, *other.values)));
  std::erase_if(*bounds->values, [&](const std::string& text) {
    return !other.values->contains(text);
  });
  return absl::OkStatus();
}

absl::Status JsonSchemaBounds::Join(const Bounds& other, Bounds* bounds) {
  bounds->types |= other.types;
  if (!other.values && other.types != 0) bounds->values.reset();
  if (!bounds->values || !other.values) return absl::OkStatus();
  RETURN_IF_ERROR(budget_.Take(StepsOfCopy(*other.values)));
  bounds->values->insert(other.values->begin(), other.values->end());
  return absl::OkStatus();
}

absl::Status JsonSchemaBounds::ApplyParts(Id id, std::string_view keyword,
                                          const json::array& parts, int depth,
                                          Bounds* bounds) {
  const bool is_all = keyword == "allOf";
  Bounds any = {.types = 0, .values = std::set<std::string>()};
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(const Id part,
                     document_.Add(parts[i], id, PathOf(keyword, i)));
    ASSIGN_OR_RETURN(const Bounds* const inner, Of(part, depth + 1));
    RETURN_IF_ERROR(is_all ? Intersect(*inner, bounds) : Join(*inner, &any));
  }
  return is_all ? absl::OkStatus() : Intersect(any, bounds);
}

absl::Status JsonSchemaBounds::ApplyKeyword(Id id, std::string_view keyword,
                                            const json::value& value, int depth,
                                            Bounds* bounds) {
  if (keyword == "const") return Intersect(BoundsOfConstants({value}), bounds);
  if (keyword == "type" && value.is_string()) {
    return Intersect({.types = TypesOfName(value.get_string())}, bounds);
  }
  if (keyword == "$ref") {
    const absl::StatusOr<Id> target = document_.Resolve(id, keyword, value);
    if (!target.ok()) return absl::OkStatus();  // reading it is an error
    ASSIGN_OR_RETURN(const Bounds* const inner, Of(*target, depth + 1));
    return Intersect(*inner, bounds);
  }
  if (!value.is_array()) return absl::OkStatus();
  const json::array& list = value.get_array();
  if (keyword == "enum") return Intersect(BoundsOfConstants(list), bounds);
  if (keyword == "type") {
    return Intersect({.types = TypesOfNames(list)}, bounds);
  }
  if (IsAmong(keyword, {"allOf", "anyOf", "oneOf"})) {
    return ApplyParts(id, keyword, list, depth, bounds);
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonSchemaBounds::Bounds> JsonSchemaBounds::Find(Id id,
                                                                int depth) {
  const json::value& value = document_.ValueOf(id);
  Bounds bounds;
  if (value.is_bool() && !value.get_bool()) bounds.types = 0;
  const json::object* const schema = value.if_object();
  if (schema == nullptr || depth > kMaxReferenceDepth) return bounds;
  for (const auto& [key, member] : *schema) {
    const std::string_view keyword = key;
    const bool is_ignored =
        document_.IsOldDraft() && keyword != "$ref" && schema->contains("$ref");
    if (is_ignored) continue;
    RETURN_IF_ERROR(ApplyKeyword(id, keyword, member, depth, &bounds));
  }
  return bounds;
}

absl::StatusOr<const JsonSchemaBounds::Bounds*> JsonSchemaBounds::Of(
    Id id, int depth) {
  // References that lead back here find that any value may satisfy it.
  const auto [entry, is_new] = known_.try_emplace(id);
  if (is_new) {
    ASSIGN_OR_RETURN(entry->second, Find(id, depth));
  }
  return &entry->second;
}

absl::StatusOr<bool> JsonSchemaBounds::AreDisjoint(Id a, Id b) {
  ASSIGN_OR_RETURN(const Bounds* first, Of(a));
  ASSIGN_OR_RETURN(const Bounds* second, Of(b));
  if ((first->types & second->types) == 0) return true;
  if (!first->values || !second->values) return false;
  if (first->values->size() > second->values->size()) std::swap(first, second);
  RETURN_IF_ERROR(
      budget_.Take(StepsOfLookups(*first->values, *second->values)));
  return std::none_of(
      first->values->begin(), first->values->end(),
      [&](const std::string& text) { return second->values->contains(text); });
}

}  // namespace espalier
