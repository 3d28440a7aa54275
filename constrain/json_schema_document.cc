#include "constrain/json_schema_document.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <functional>

#include "base/check.h"
#include "base/status.h"
#include "constrain/json_keywords.h"
#include "constrain/json_number_language.h"

namespace espalier {
namespace {

// Keywords by the form of the subschemas in them.
constexpr std::array<std::string_view, 12> kOneSchema = {
    "not",
    "if",
    "then",
    "else",
    "items",
    "contains",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema"};
constexpr std::array<std::string_view, 5> kSchemaLists = {
    "allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::array<std::string_view, 6> kSchemaMaps = {
    "properties",  "patternProperties", "$defs",
    "definitions", "dependentSchemas",  "dependencies"};
// Keywords that no language depends on.
constexpr std::array<std::string_view, 11> kAnnotations = {
    "title",    "description", "default",    "examples",
    "$comment", "deprecated",  "readOnly",   "writeOnly",
    "$defs",    "definitions", "$vocabulary"};

struct DraftUri {
  std::string_view uri;  // after "http://" or "https://"
  JsonSchemaDraft draft;
};
constexpr std::array<DraftUri, 4> kDraftUris = {{
    {"json-schema.org/draft/2020-12/schema", JsonSchemaDraft::k2020_12},
    {"json-schema.org/draft-07/schema", JsonSchemaDraft::k7},
    {"json-schema.org/draft-06/schema", JsonSchemaDraft::k6},
    {"json-schema.org/draft-04/schema", JsonSchemaDraft::k4},
}};

template <size_t n>
bool Has(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Calls visit(path, subschema) for each subschema of `schema`.
template <typename Object, typename Visit>
absl::Status ForEachSubschema(Object& schema, const Visit& visit) {
  for (auto& [key, value] : schema) {
    const std::string name(key);
    if (Has(kSchemaMaps, key) && value.is_object()) {
      for (auto& [inner, subschema] : value.get_object()) {
        RETURN_IF_ERROR(visit(name + "/" + EscapePointer(inner), subschema));
      }
    } else if (Has(kSchemaLists, key) && value.is_array()) {
      for (size_t i = 0; i < value.get_array().size(); ++i) {
        RETURN_IF_ERROR(visit(Concat(name, "/", i), value.get_array()[i]));
      }
    } else if (Has(kOneSchema, key)) {
      RETURN_IF_ERROR(visit(name, value));
    }
  }
  return absl::OkStatus();
}

// Appends a text that a schema shares with those that differ in annotations
// alone.
void AppendContent(const json::value& schema, std::string* out) {
  if (!schema.is_object()) {
    *out += CanonicalJson(schema);
    return;
  }
  *out += '{';
  for (const auto& [key, value] : schema.get_object()) {
    if (Has(kAnnotations, key)) continue;
    *out += CanonicalJson(json::value(key));
    *out += ':';
    if (Has(kSchemaMaps, key) && value.is_object()) {
      *out += '{';
      for (const auto& [inner, subschema] : value.get_object()) {
        *out += CanonicalJson(json::value(inner));
        *out += ':';
        AppendContent(subschema, out);
      }
      *out += '}';
    } else if (Has(kSchemaLists, key) && value.is_array()) {
      *out += '[';
      for (const json::value& subschema : value.get_array()) {
        AppendContent(subschema, out);
        *out += ',';
      }
      *out += ']';
    } else if (Has(kOneSchema, key)) {
      AppendContent(value, out);
    } else {
      *out += WriteJson(value);
    }
    *out += ',';
  }
  *out += '}';
}

// Returns the length of "http:" in a URI that has a scheme; 0 in another.
size_t SchemeLength(std::string_view uri) {
  for (size_t i = 0; i < uri.size(); ++i) {
    const auto c = static_cast<unsigned char>(uri[i]);
    if (c == ':') return i > 0 ? i + 1 : 0;
    if (std::isalnum(c) == 0 && c != '+' && c != '-' && c != '.') return 0;
  }
  return 0;
}

// Removes "." and ".." from a path.
std::string WithoutDots(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = path.find('/');
    const std::string_view part = path.substr(0, end);
    const bool is_last = end == path.npos;
    if (part == ".." && parts.size() > 1) parts.pop_back();
    if (part != "." && part != "..") {
      parts.push_back(part);
    } else if (is_last) {
      parts.emplace_back();
    }
    if (is_last) break;
    path.remove_prefix(end + 1);
  }
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += '/';
    result += parts[i];
  }
  return result;
}

// Resolves a reference against a base without fragment (RFC 3986, section 5).
std::string ResolveUri(std::string_view base, std::string_view reference) {
  if (SchemeLength(reference) > 0) return std::string(reference);
  if (reference.empty() || reference.front() == '#') {
    return std::string(base) + std::string(reference);
  }
  const size_t scheme = SchemeLength(base);
  size_t path = scheme;
  if (base.substr(scheme, 2) == "//") {
    path = std::min(base.find('/', scheme + 2), base.size());
  }
  const size_t fragment = std::min(reference.find('#'), reference.size());
  const std::string_view target = reference.substr(0, fragment);
  std::string result;
  if (target.substr(0, 2) == "//") {
    result = std::string(base.substr(0, scheme)) + std::string(target);
  } else if (target.front() == '/') {
    result = std::string(base.substr(0, path)) + WithoutDots(target);
  } else {
    const size_t slash = base.rfind('/');
    const size_t folder = slash == base.npos || slash < path ? path : slash + 1;
    std::string joined = std::string(base.substr(path, folder - path));
    if (joined.empty() && path > scheme) joined = "/";
    joined += target;
    result = std::string(base.substr(0, path)) + WithoutDots(joined);
  }
  return result + std::string(reference.substr(fragment));
}

// Returns the text with %41 decoded.
std::string DecodePercent(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16).ptr ==
            &text[i + 1] + 2) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string UnescapePointer(std::string_view part) {
  std::string result;
  for (size_t i = 0; i < part.size(); ++i) {
    const bool is_escape = part[i] == '~' && i + 1 < part.size();
    if (is_escape && part[i + 1] == '0') {
      result += '~';
      ++i;
    } else if (is_escape && part[i + 1] == '1') {
      result += '/';
      ++i;
    } else {
      result += part[i];
    }
  }
  return result;
}

// Returns a string member; null if there is none.
const json::string* StringMember(const json::object& object,
                                 std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value == nullptr ? nullptr : value->if_string();
}

}  // namespace

void CloseObjects(json::value* schema) {
  json::object* const object = schema->if_object();
  if (object == nullptr) return;
  // Values inside move where a member is added, so they are done before.
  const absl::Status status =
      ForEachSubschema(*object, [](const std::string&, json::value& subschema) {
        CloseObjects(&subschema);
        return absl::OkStatus();
      });
  CHECK(status.ok()) << status;
  const bool names_keys =
      object->contains("properties") || object->contains("patternProperties");
  if (names_keys) object->emplace("additionalProperties", false);
}

std::string EscapePointer(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

std::string PathOf(std::string_view keyword, std::string_view key) {
  return Concat(keyword, "/", EscapePointer(key));
}
std::string PathOf(std::string_view keyword, size_t index) {
  return Concat(keyword, "/", index);
}

std::string CanonicalJson(const json::value& value) {
  if (value.is_number()) {
    const absl::StatusOr<Decimal> decimal = DecimalOf(value);
    return decimal.ok() ? decimal->Text() : WriteJson(value);
  }
  if (value.is_array()) {
    std::string text = "[";
    for (const json::value& item : value.get_array()) {
      text += CanonicalJson(item) + ",";
    }
    return text + "]";
  }
  if (!value.is_object()) return WriteJson(value);
  std::map<std::string, std::string> members;
  for (const auto& [key, member] : value.get_object()) {
    members.emplace(WriteJson(json::value(key)), CanonicalJson(member));
  }
  std::string text = "{";
  for (const auto& [key, member] : members) text += key + ":" + member + ",";
  return text + "}";
}

absl::StatusOr<std::unique_ptr<JsonSchemaDocument>> JsonSchemaDocument::Make(
    json::value schema, JsonSchemaDraft draft, CompileBudget* budget) {
  std::unique_ptr<JsonSchemaDocument> document(
      new JsonSchemaDocument(std::move(schema), draft, budget));
  RETURN_IF_ERROR(document->ReadDraft());
  document->bases_.emplace_back();
  document->resources_.emplace("", Place{.value = &document->root_});
  RETURN_IF_ERROR(document->Register(document->root_, 0, "#"));
  RETURN_IF_ERROR(document->AddAt({.value = &document->root_}).status());
  return document;
}

absl::Status JsonSchemaDocument::ReadDraft() {
  const json::object* const object = root_.if_object();
  const json::value* const name =
      object == nullptr ? nullptr : object->if_contains("$schema");
  if (name == nullptr) return absl::OkStatus();
  std::string_view uri;
  if (name->is_string()) uri = name->get_string();
  if (!uri.empty() && uri.back() == '#') uri.remove_suffix(1);
  const size_t scheme = uri.find("://");
  const std::string_view place =
      scheme == uri.npos ? uri : uri.substr(scheme + 3);
  for (const DraftUri& draft : kDraftUris) {
    if (place != draft.uri) continue;
    draft_ = draft.draft;
    return absl::OkStatus();
  }
  return InvalidArgument(
      "#/$schema: ", Shown(name),
      " is not supported; drafts 2020-12, 7, 6 and 4 are, such as "
      "\"https://json-schema.org/draft/2020-12/schema\" and "
      "\"http://json-schema.org/draft-07/schema#\"");
}

absl::Status JsonSchemaDocument::AddAnchor(std::string_view name, Place place) {
  std::string uri = Concat(bases_[place.base], "#", name);
  anchors_.emplace(std::move(uri), std::move(place));
  return absl::OkStatus();
}

// Registers the names of one schema.
absl::Status JsonSchemaDocument::RegisterNames(const json::object& schema,
                                               Place place) {
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    if (draft_ != JsonSchemaDraft::k2020_12) break;
    const json::string* const name = StringMember(schema, keyword);
    if (name == nullptr) continue;
    place.is_dynamic = keyword == "$dynamicAnchor";
    if (place.is_dynamic) ++num_dynamic_[std::string(*name)];
    RETURN_IF_ERROR(AddAnchor(*name, place));
  }
  return absl::OkStatus();
}

absl::Status JsonSchemaDocument::Register(const json::value& value, int base,
                                          const std::string& pointer) {
  const json::object* const schema = value.if_object();
  if (schema == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(budget_->Take(64));
  const json::string* const id =
      StringMember(*schema, draft_ == JsonSchemaDraft::k4 ? "id" : "$id");
  // Older drafts ignore all beside "$ref".
  const bool is_ignored =
      draft_ != JsonSchemaDraft::k2020_12 && schema->contains("$ref");
  if (id != nullptr && !is_ignored) {
    const std::string uri = ResolveUri(bases_[base], *id);
    const size_t fragment = uri.find('#');
    const std::string without = uri.substr(0, fragment);
    if (without != bases_[base] || &value == &root_) {
      base = static_cast<int>(bases_.size());
      bases_.push_back(without);
      base_of_.emplace(&value, base);
      resources_.emplace(
          without, Place{.value = &value, .base = base, .pointer = pointer});
    }
    if (fragment != uri.npos && fragment + 1 < uri.size()) {
      RETURN_IF_ERROR(
          AddAnchor(uri.substr(fragment + 1),
                    {.value = &value, .base = base, .pointer = pointer}));
    }
  }
  RETURN_IF_ERROR(RegisterNames(
      *schema, {.value = &value, .base = base, .pointer = pointer}));
  return ForEachSubschema(
      *schema, [&](const std::string& path, const json::value& subschema) {
        return Register(subschema, base, pointer + "/" + path);
      });
}

absl::StatusOr<JsonSchemaDocument::Id> JsonSchemaDocument::AddAt(
    const Place& place) {
  int base = place.base;
  const auto own_base = base_of_.find(place.value);
  if (own_base != base_of_.end()) base = own_base->second;
  const auto known = known_.find({place.value, base});
  if (known != known_.end()) return known->second;
  std::string content = Concat(base, ":");
  AppendContent(*place.value, &content);
  RETURN_IF_ERROR(budget_->Take(static_cast<int64_t>(content.size())));
  const auto [entry, is_new] =
      ids_.try_emplace(std::move(content), static_cast<Id>(schemas_.size()));
  if (is_new) schemas_.push_back({place.value, base, place.pointer});
  known_.emplace(std::pair(place.value, base), entry->second);
  return entry->second;
}

absl::StatusOr<JsonSchemaDocument::Id> JsonSchemaDocument::Add(
    const json::value& value, Id parent, std::string_view path) {
  const Schema& schema = schemas_[parent];
  return AddAt({.value = &value,
                .base = schema.base,
                .pointer = Concat(schema.pointer, "/", path)});
}

absl::StatusOr<JsonSchemaDocument::Id> JsonSchemaDocument::AddConst(
    const json::value& value, Id parent) {
  RETURN_IF_ERROR(budget_->Take(64));
  constants_.emplace_back(json::object{{"const", value}});
  return AddAt({.value = &constants_.back(),
                .base = 0,
                .pointer = schemas_[parent].pointer});
}

absl::StatusOr<JsonSchemaDocument::Place> JsonSchemaDocument::Follow(
    Place place, std::string_view pointer) const {
  const std::string whole = DecodePercent(pointer);
  std::string_view rest = whole;
  while (!rest.empty()) {
    rest.remove_prefix(1);  // "/"
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string part = UnescapePointer(rest.substr(0, end));
    rest.remove_prefix(end);
    const json::value* next = nullptr;
    if (const json::object* const object = place.value->if_object()) {
      next = object->if_contains(part);
    } else if (const json::array* const array = place.value->if_array()) {
      size_t index = 0;
      const auto read =
          std::from_chars(part.data(), part.data() + part.size(), index);
      if (read.ec == std::errc() && read.ptr == part.data() + part.size() &&
          index < array->size()) {
        next = &(*array)[index];
      }
    }
    if (next == nullptr) {
      return InvalidArgument("the schema has nothing at ",
                             ShownInQuotes(whole));
    }
    place.value = next;
    place.pointer += "/" + EscapePointer(part);
    const auto base = base_of_.find(next);
    if (base != base_of_.end()) place.base = base->second;
  }
  return place;
}

absl::StatusOr<JsonSchemaDocument::Id> JsonSchemaDocument::Resolve(
    Id from, std::string_view keyword, const json::value& reference) {
  ASSIGN_OR_RETURN(const std::string text, StringOf(reference));
  const bool is_dynamic = keyword == "$dynamicRef";
  const std::string uri = ResolveUri(bases_[schemas_[from].base], text);
  RETURN_IF_ERROR(budget_->Take(64 + static_cast<int64_t>(uri.size())));
  const size_t hash = std::min(uri.find('#'), uri.size());
  const std::string_view fragment =
      std::string_view(uri).substr(std::min(hash + 1, uri.size()));
  if (!fragment.empty() && fragment.front() != '/') {
    const auto anchor = anchors_.find(uri);
    if (anchor == anchors_.end()) {
      return InvalidArgument("the schema has no anchor ", ShownInQuotes(uri));
    }
    const auto num = num_dynamic_.find(fragment);
    if (is_dynamic && anchor->second.is_dynamic && num->second > 1) {
      return InvalidArgument(num->second, " subschemas have the ",
                             "\"$dynamicAnchor\" ", ShownInQuotes(fragment),
                             ", and which one is meant depends on the text");
    }
    return AddAt(anchor->second);
  }
  const auto resource = resources_.find(uri.substr(0, hash));
  if (resource == resources_.end()) {
    return InvalidArgument("the schema does not contain ", ShownInQuotes(uri),
                           ", and others are not fetched");
  }
  ASSIGN_OR_RETURN(const Place place, Follow(resource->second, fragment));
  return AddAt(place);
}

}  // namespace espalier
