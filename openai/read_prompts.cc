#include "openai/read_prompts.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "request/json/read_prompt.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

absl::Status RefuseEmpty(std::string_view name, std::string_view value) {
  return InvalidField(FieldName{name}, " must not be empty", Got(value));
}

absl::Status ToTokens(std::string_view name, const std::vector<int64_t>& ids,
                      std::vector<TokenId>* tokens) {
  if (ids.empty()) return RefuseEmpty(name, "[]");
  return ToTokenIds(name, ids, tokens);
}

absl::Status CheckText(std::string_view name, const std::string& text) {
  return text.empty() ? RefuseEmpty(name, "\"\"") : absl::OkStatus();
}

// Returns the first item of a list; nullopt of an empty one, and of another
// value.
std::optional<JsonText> FirstItem(const JsonText& json) {
  if (!json.is_array()) return std::nullopt;
  JsonItems items(json.text);
  if (!items.Next()) return std::nullopt;
  return JsonText{items.value()};
}

// Checks the length of a list of prompts; nested items do not count.
absl::Status CheckNumPrompts(std::string_view name, const JsonText& json,
                             const Limits& limits) {
  int64_t count = 0;
  for (JsonItems items(json.text); items.Next();) ++count;
  if (count <= limits.max_prompts) return absl::OkStatus();
  return InvalidField(FieldName{name}, " must have at most ",
                      Limit(limits.max_prompts), " prompts (--max-prompts)",
                      Got(count));
}

absl::Status ReadTexts(std::string_view name, const JsonText& json,
                       const Limits& limits,
                       std::vector<TextOrTokens>* prompts) {
  RETURN_IF_ERROR(CheckNumPrompts(name, json, limits));
  std::vector<std::string> texts;
  RETURN_IF_ERROR(Read(name, json, &texts));
  for (size_t i = 0; i < texts.size(); ++i) {
    RETURN_IF_ERROR(CheckText(Concat(name, "[", i, "]"), texts[i]));
    prompts->emplace_back(std::move(texts[i]));
  }
  return absl::OkStatus();
}

absl::Status ReadTokenLists(std::string_view name, const JsonText& json,
                            const Limits& limits,
                            std::vector<TextOrTokens>* prompts) {
  RETURN_IF_ERROR(CheckNumPrompts(name, json, limits));
  std::vector<std::vector<int64_t>> lists;
  RETURN_IF_ERROR(Read(name, json, &lists));
  for (size_t i = 0; i < lists.size(); ++i) {
    std::vector<TokenId> tokens;
    RETURN_IF_ERROR(ToTokens(Concat(name, "[", i, "]"), lists[i], &tokens));
    prompts->emplace_back(std::move(tokens));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTokens(std::string_view name, const JsonText& json,
                        const Limits& limits, std::vector<TokenId>* tokens) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(Read(name, json, &ids));
  return ToTokens(name, ids, tokens);
}

absl::Status ReadPrompt(std::string_view name, const JsonText& json,
                        const Limits& limits, TextOrTokens* prompt) {
  if (json.is_string()) {
    std::string text = Unquoted(json.text);
    RETURN_IF_ERROR(CheckText(name, text));
    *prompt = std::move(text);
    return absl::OkStatus();
  }
  const std::optional<JsonText> first = FirstItem(json);
  const bool is_list = first && (first->is_string() || first->is_array());
  if (!json.is_array() || is_list) {
    return WrongType(name, "a string or token ids", json.text);
  }
  return ReadTokens(name, json, limits,
                    &prompt->emplace<std::vector<TokenId>>());
}

absl::Status ReadPromptList(std::string_view name, const JsonText& json,
                            const Limits& limits,
                            std::vector<TextOrTokens>* prompts) {
  constexpr std::string_view kWanted =
      "a list of strings, or of lists of token ids";
  if (!json.is_array()) return WrongType(name, kWanted, json.text);
  const std::optional<JsonText> first = FirstItem(json);
  if (!first) return RefuseEmpty(name, "[]");
  if (first->is_string()) return ReadTexts(name, json, limits, prompts);
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  if (first->is_array()) return ReadTokenLists(name, json, limits, prompts);
  return WrongType(name, kWanted, json.text);
}

absl::Status ReadPrompts(std::string_view name, const JsonText& json,
                         const Limits& limits, Call* call) {
  const std::optional<JsonText> first = FirstItem(json);
  if (!json.is_string() && !json.is_array()) {
    return WrongType(name, "a string, token ids, or a list of these",
                     json.text);
  }
  call->prompts_are_list = first && (first->is_string() || first->is_array());
  if (call->prompts_are_list) {
    return ReadPromptList(name, json, limits, &call->prompts);
  }
  if (first && !first->is_number()) {
    RETURN_IF_ERROR(CheckElements(name, json, limits));
    return WrongType(Concat(name, "[0]"), "a string, a token id or a list",
                     first->text);
  }
  return ReadPrompt(name, json, limits, &call->prompts.emplace_back());
}

absl::Status ReadMessages(std::string_view name, const JsonText& json,
                          const Limits& limits,
                          std::optional<ChatInputs>* chat) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  ASSIGN_OR_RETURN(json::array messages, espalier::ReadMessages(name, json));
  if (static_cast<int64_t>(messages.size()) > limits.max_messages) {
    return InvalidField(FieldName{name}, " must have at most ",
                        Limit(limits.max_messages),
                        " messages (--max-messages)", Got(messages.size()));
  }
  if (!*chat) chat->emplace();
  (*chat)->messages = std::move(messages);
  return absl::OkStatus();
}

absl::Status ReadName(std::string_view name, const JsonText& json,
                      const Limits& limits, std::string* out) {
  RETURN_IF_ERROR(Read(name, json, out));
  if (std::ssize(*out) <= limits.max_name_bytes) return absl::OkStatus();
  return InvalidField(FieldName{name}, " must have at most ",
                      Limit(limits.max_name_bytes), " bytes",
                      Got(out->size(), ": ", ShownInQuotes(*out)));
}

}  // namespace espalier::openai
