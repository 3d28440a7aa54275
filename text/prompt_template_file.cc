#include "text/prompt_template_file.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// In what follows `where` names a place in the file (templates[0].prompt[2])
// and opens every error's message.

std::string JoinNames(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

absl::Status CheckFields(const json::object& object, const std::string& where,
                         const std::vector<std::string>& known) {
  for (const auto& [key, value] : object) {
    const std::string name(key);
    if (std::ranges::find(known, name) == known.end()) {
      return InvalidArgument(where, ": unknown field ", ShownInQuotes(name),
                             "; known fields: ", JoinNames(known));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const json::value*> RequiredField(const json::object& object,
                                                 const std::string& where,
                                                 const char* field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr) {
    return InvalidArgument(where, ": field \"", field, "\" is missing");
  }
  return value;
}

absl::StatusOr<std::string> NonEmptyString(const json::value& value,
                                           const std::string& where) {
  if (!value.is_string() || value.get_string().empty()) {
    return InvalidArgument(where, " must be a string that is not empty, got ",
                           Shown(&value));
  }
  return std::string(value.get_string());
}

absl::StatusOr<std::string> RequiredString(const json::object& object,
                                           const std::string& where,
                                           const char* field) {
  ASSIGN_OR_RETURN(const json::value* value,
                   RequiredField(object, where, field));
  return NonEmptyString(*value, where + "." + field);
}

// Empty if the field is missing.
absl::StatusOr<std::string> OptionalString(const json::object& object,
                                           const std::string& where,
                                           const char* field) {
  const json::value* value = object.if_contains(field);
  if (value == nullptr) return std::string();
  return NonEmptyString(*value, where + "." + field);
}

absl::StatusOr<const json::array*> RequiredArray(const json::object& object,
                                                 const std::string& where,
                                                 const char* field) {
  ASSIGN_OR_RETURN(const json::value* value,
                   RequiredField(object, where, field));
  if (!value->is_array()) {
    return InvalidArgument(where, ".", field, " must be a list, got ",
                           Shown(value));
  }
  return &value->get_array();
}

absl::StatusOr<const json::object*> AsObject(const json::value& value,
                                             const std::string& where) {
  if (!value.is_object()) {
    return InvalidArgument(where, " must be an object, got ", Shown(&value));
  }
  return &value.get_object();
}

bool IsTextSlot(const json::value& value) {
  return value == json::value{{"text", true}};
}

absl::StatusOr<TokenId> ParsePiece(const json::value& value,
                                   const std::string& where,
                                   const Tokenizer& tokenizer) {
  if (!value.is_string()) {
    return InvalidArgument(where, " must be a piece (a string) or ",
                           R"({"text": true}, got )", Shown(&value));
  }
  const std::string piece(value.get_string());
  const std::optional<TokenId> token = tokenizer.PieceToId(piece);
  if (!token) {
    return InvalidArgument(where, ": the tokenizer has no piece ",
                           ShownInQuotes(piece));
  }
  return *token;
}

absl::Status ParsePrompt(const json::array& items, const std::string& where,
                         const Tokenizer& tokenizer, PromptTemplate& prompt) {
  const auto num_slots = std::ranges::count_if(items, IsTextSlot);
  int num_slots_seen = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (IsTextSlot(items[i])) {
      ++num_slots_seen;
      continue;
    }
    ASSIGN_OR_RETURN(
        const TokenId token,
        ParsePiece(items[i], Concat(where, "[", i, "]"), tokenizer));
    (num_slots_seen == 0 ? prompt.before_text : prompt.after_text)
        .push_back(token);
  }
  if (num_slots != 1) {
    return InvalidArgument(where, R"( needs {"text": true} once, has it )",
                           num_slots, " times");
  }
  return absl::OkStatus();
}

absl::StatusOr<PromptTemplate> ParseTemplate(const json::value& value,
                                             const std::string& where,
                                             const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const json::object* object, AsObject(value, where));
  RETURN_IF_ERROR(CheckFields(*object, where,
                              {"name", "from", "to", "description", "prompt"}));
  PromptTemplate prompt;
  ASSIGN_OR_RETURN(prompt.name, RequiredString(*object, where, "name"));
  ASSIGN_OR_RETURN(prompt.from, OptionalString(*object, where, "from"));
  ASSIGN_OR_RETURN(prompt.to, OptionalString(*object, where, "to"));
  ASSIGN_OR_RETURN(prompt.description,
                   OptionalString(*object, where, "description"));
  if (prompt.from.empty() != prompt.to.empty()) {
    return InvalidArgument(where, ": \"from\" and \"to\" go together, only \"",
                           prompt.from.empty() ? "to" : "from", "\" is given");
  }
  ASSIGN_OR_RETURN(const json::array* items,
                   RequiredArray(*object, where, "prompt"));
  RETURN_IF_ERROR(ParsePrompt(*items, where + ".prompt", tokenizer, prompt));
  return prompt;
}

// Checks that no template in `others` has the name or direction of `prompt`.
absl::Status CheckUnique(const PromptTemplate& prompt, const std::string& where,
                         const std::vector<PromptTemplate>& others) {
  for (const PromptTemplate& other : others) {
    if (other.name == prompt.name) {
      return InvalidArgument(where, ".name \"", prompt.name,
                             "\" is used twice");
    }
    if (!prompt.from.empty() && other.from == prompt.from &&
        other.to == prompt.to) {
      return InvalidArgument(where, ": from \"", prompt.from, "\" to \"",
                             prompt.to, "\" is already the direction of \"",
                             other.name, "\"");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PromptTemplate>> ParseTemplates(
    const json::array& items, const Tokenizer& tokenizer) {
  if (items.empty()) return InvalidArgument("templates must not be empty");
  std::vector<PromptTemplate> templates;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string where = Concat("templates[", i, "]");
    ASSIGN_OR_RETURN(PromptTemplate prompt,
                     ParseTemplate(items[i], where, tokenizer));
    RETURN_IF_ERROR(CheckUnique(prompt, where, templates));
    templates.push_back(std::move(prompt));
  }
  return templates;
}

}  // namespace

absl::StatusOr<PromptTemplateFile> ParsePromptTemplateFile(
    std::string_view text, const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(text));
  const std::string where = "top level";
  ASSIGN_OR_RETURN(const json::object* object, AsObject(value, where));
  RETURN_IF_ERROR(CheckFields(*object, where, {"default", "templates"}));
  PromptTemplateFile file;
  ASSIGN_OR_RETURN(file.default_name,
                   RequiredString(*object, where, "default"));
  ASSIGN_OR_RETURN(const json::array* items,
                   RequiredArray(*object, where, "templates"));
  ASSIGN_OR_RETURN(file.templates, ParseTemplates(*items, tokenizer));
  return file;
}

}  // namespace espalier
