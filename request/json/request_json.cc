#include "request/json/request_json.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/field_error.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/json/read_prompt.h"
#include "request/other_names.h"
#include "request/param_fields.h"
#include "request/read_json_text.h"

namespace espalier {
namespace {

bool IsParam(std::string_view key) { return FindParamField(key) != nullptr; }
bool IsRequestField(std::string_view key) {
  return std::ranges::find(kRequestFields, key) != std::end(kRequestFields);
}

// The members of an object; the last of duplicate keys counts, at the place of
// the first. Reading stops at the first unknown key, so the number of members
// is bounded for any object.
class ObjectFields {
 public:
  using IsKnown = bool (*)(std::string_view key);
  struct Field {
    std::string key;
    JsonText value;
  };

  explicit ObjectFields(IsKnown is_known) : is_known_(is_known) {}

  void Add(std::string_view quoted_key, const JsonText& value) {
    if (ends_unknown_) return;
    std::string key = Unquoted(quoted_key);
    const auto same = std::ranges::find(fields_, key, &Field::key);
    if (same != fields_.end()) {
      same->value = value;
      return;
    }
    ends_unknown_ = !is_known_(key);
    fields_.push_back({std::move(key), value});
  }

  // Null is as if the field were not there; not so of one that is not known.
  void DropNulls() {
    std::erase_if(fields_, [&](const Field& field) {
      return field.value.is_null() && is_known_(field.key);
    });
  }

  const JsonText* Find(std::string_view key) const {
    const auto found = std::ranges::find(fields_, key, &Field::key);
    return found == fields_.end() ? nullptr : &found->value;
  }

  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  IsKnown is_known_;
  std::vector<Field> fields_;
  bool ends_unknown_ = false;
};

struct LineFields {
  ObjectFields request{IsRequestField};
  ObjectFields params{IsParam};  // fields of the last member "params"
  // The last member "id", wherever it is.
  std::optional<JsonText> id;
};

// Takes the fields of a line as they are found, those of params before
// "params" itself.
class FieldTaker {
 public:
  void Take(int depth, std::string_view quoted_key, const JsonText& value) {
    if (depth == 2) return inner_.Add(quoted_key, value);
    const std::string key = Unquoted(quoted_key);
    if (key == "id") fields_.id = value;
    if (key == "params") fields_.params = std::move(inner_);
    inner_ = ObjectFields(IsParam);
    fields_.request.Add(quoted_key, value);
  }

  // Once all are found.
  LineFields Finish() {
    fields_.request.DropNulls();
    fields_.params.DropNulls();
    if (fields_.id && fields_.id->is_null()) fields_.id.reset();
    return std::move(fields_);
  }

 private:
  LineFields fields_;
  ObjectFields inner_{IsParam};
};

absl::Status CheckSize(std::string_view field, const JsonText& json,
                       const RequestLineLimits& limits) {
  if (json.num_values <= limits.max_list_elements) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must have at most ",
                      Limit(limits.max_list_elements), " elements (",
                      limits.max_list_elements_name, ")", Got(json.num_values));
}

// Parameters of a line; a field and its alias together are one too many.
absl::Status ReadParams(const JsonText& json, const ObjectFields& fields,
                        const RequestLineLimits& limits, RequestBody* body) {
  if (!json.is_object()) return WrongType("params", "an object", json.text);
  std::set<const ParamField*> seen;
  for (const auto& [key, value] : fields) {
    const ParamField* field = FindParamField(key);
    if (field == nullptr) return UnknownParam(key);
    if (!seen.insert(field).second) {
      return InvalidField(FieldName{field->name}, " and ", field->alias,
                          " are the same field", Got("both"));
    }
    RETURN_IF_ERROR(CheckSize(key, value, limits));
    RETURN_IF_ERROR(ReadParam(*field, key, value, &body->params));
    body->given.push_back(field->name);
    if (key != field->name) {
      body->aliases.push_back({field->name, field->alias});
    }
  }
  return absl::OkStatus();
}

absl::Status WithHint(const absl::Status& error, std::string_view hint) {
  return AppendParts(error, hint);
}

absl::Status ReadPromptTokens(const JsonText& json, std::vector<TokenId>* out) {
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(Read("prompt_tokens", json, &ids));
  return ToTokenIds("prompt_tokens", ids, out);
}

absl::Status ReadPrompt(const JsonText& json, RequestBody* body) {
  if (json.is_array()) {
    return WithHint(WrongType("prompt", "a string", json.text),
                    "; ids are prompt_tokens, each text has its own line");
  }
  RETURN_IF_ERROR(Read("prompt", json, &body->prompt));
  if (!body->prompt->empty()) return absl::OkStatus();
  return InvalidField("`prompt` must not be empty", Got("\"\""));
}

absl::Status ReadTemplate(const JsonText& json, RequestBody* body) {
  RETURN_IF_ERROR(Read("template", json, &body->template_name));
  if (!body->template_name.empty()) return absl::OkStatus();
  return InvalidField("`template` must not be empty", Got("\"\""));
}

// Checks that a request has exactly one kind of prompt.
absl::Status CheckOnePrompt(const ObjectFields& request) {
  std::vector<std::string> names;
  for (const char* name : {"prompt", "prompt_tokens", "messages"}) {
    if (request.Find(name) != nullptr) names.push_back(name);
  }
  if (names.size() == 1) return absl::OkStatus();
  return InvalidField(
      "a request needs one of prompt, `prompt_tokens` and messages",
      Got(names.empty() ? "none" : JoinWithAnd(names)));
}

absl::Status UnknownField(std::string_view key) {
  const std::vector<std::string_view> params = ParamNames();
  const FieldPlaces places = {kRequestFields, params, " in params"};
  std::string hint = "; it belongs in params";
  if (!IsParam(key)) {
    const std::optional<std::string> other = HintAtOtherName(key, places);
    hint = other ? *other : HintAtMisspelling(key, places);
  }
  return InvalidArgument("unknown field ", ShownInQuotes(key), hint);
}

absl::StatusOr<RequestBody> ReadBody(const LineFields& fields,
                                     const RequestLineLimits& limits) {
  RequestBody body;
  for (const auto& [key, value] : fields.request) {
    if (key == "id") continue;  // read by ParseRequestLine
    if (key == "params") {
      RETURN_IF_ERROR(ReadParams(value, fields.params, limits, &body));
    } else if (key == "prompt") {
      RETURN_IF_ERROR(ReadPrompt(value, &body));
    } else if (key == "prompt_tokens") {
      RETURN_IF_ERROR(CheckSize(key, value, limits));
      RETURN_IF_ERROR(ReadPromptTokens(value, &body.prompt_tokens));
    } else if (key == "messages") {
      RETURN_IF_ERROR(CheckSize(key, value, limits));
      ASSIGN_OR_RETURN(body.messages, ReadMessages(key, value));
    } else if (key == "parse_special") {
      RETURN_IF_ERROR(Read(key, value, &body.parse_special));
    } else if (key == "split_sentences") {
      RETURN_IF_ERROR(Read(key, value, &body.split_sentences.emplace()));
    } else if (key == "continue_final_message") {
      RETURN_IF_ERROR(Read(key, value, &body.continue_final_message));
    } else if (key == "template") {
      RETURN_IF_ERROR(ReadTemplate(value, &body));
    } else {
      return UnknownField(key);
    }
  }
  RETURN_IF_ERROR(CheckOnePrompt(fields.request));
  if (body.parse_special && !body.prompt) {
    return InvalidField("`parse_special` needs prompt", Got("true"));
  }
  if (body.split_sentences.value_or(false) && !body.prompt) {
    return InvalidField("`split_sentences` needs prompt", Got("true"));
  }
  if (body.continue_final_message && !body.messages) {
    return InvalidField("`continue_final_message` needs messages", Got("true"));
  }
  if (!body.prompt && !body.template_name.empty()) {
    return InvalidField("`template` needs prompt, whose text it is for",
                        Got(ShownInQuotes(body.template_name)));
  }
  return body;
}

// Reads the id as JSON to be echoed, and as its caller writes it.
absl::Status ReadId(const JsonText& json, std::string* echoed,
                    std::string* caller_id) {
  if (json.is_string()) {
    *caller_id = Unquoted(json.text);
    *echoed = WriteJson(json::value(*caller_id));
    return absl::OkStatus();
  }
  if (!json.is_number()) {
    return WrongType("id", "a string or a number", json.text);
  }
  *echoed = *caller_id = std::string(json.text);
  return absl::OkStatus();
}

// Returns the error for a line that is not JSON. A line that does not begin and
// end like an object may be a bare prompt, or part of a request that spans
// several lines; then the error has a hint.
absl::Status NoRequest(std::string_view line, const absl::Status& error) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = line.find_first_not_of(kSpaces);
  if (begin == line.npos) return error;
  const char last = line[line.find_last_not_of(kSpaces)];
  if (line[begin] == '{' && last == '}') return error;
  return WithHint(
      error,
      "; a request is one line, {\"prompt\": \"It rains.\"} for instance");
}

}  // namespace

absl::Status InWordsOfLine(const std::vector<GivenParam>& aliases,
                           const absl::Status& error) {
  return InWordsOf(
      {.field = [&](std::string_view field) -> std::optional<std::string> {
        const auto given =
            std::ranges::find(aliases, field, &GivenParam::param);
        if (given == aliases.end()) return std::nullopt;
        return std::string(given->name);
      }},
      error);
}

RequestLine ParseRequestLine(std::string_view line,
                             const RequestLineLimits& limits) {
  FieldTaker taker;
  const auto take = [&](int depth, std::string_view key,
                        const JsonText& value) {
    taker.Take(depth, key, value);
  };
  const absl::StatusOr<JsonText> json = ScanJson(line, 2, take);
  if (!json.ok()) return {"", NoRequest(line, json.status())};
  if (!json->is_object()) {
    return {"", WithHint(WrongType("a request", "a JSON object", json->text),
                         json->is_array()
                             ? "; of a list jq -c '.[]' makes a line each"
                             : "")};
  }
  const LineFields fields = taker.Finish();
  RequestLine result{"", absl::StatusOr<RequestBody>()};
  std::string caller_id;
  if (const auto& id = fields.id) {
    const absl::Status status = ReadId(*id, &result.id, &caller_id);
    if (!status.ok()) return {"", status};
  }
  result.body = ReadBody(fields, limits);
  if (result.body.ok()) result.body->caller_id = std::move(caller_id);
  return result;
}

}  // namespace espalier
