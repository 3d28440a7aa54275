#include "openai/call_draft.h"

#include <algorithm>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier::openai {

std::string_view CallDraft::TextOf(std::string_view param) const {
  const auto found = std::ranges::find(texts, param, &ParamText::param);
  return found == texts.end() ? std::string_view() : found->text;
}

absl::Status ReadGivenParam(const ParamField& field, std::string_view name,
                            const JsonText& json, CallDraft* draft) {
  if (draft->call.Gives(field.name)) {
    const std::string_view text = draft->TextOf(field.name);
    if (text == json.text) return absl::OkStatus();
    // Without a text the param was given in other words, as in response_format.
    return InvalidField(FieldName{draft->call.NameOf(field.name)}, " and ",
                        FieldName{name}, " are the same field",
                        text.empty()
                            ? Got(Shown(json.text))
                            : Got(Shown(text), " and ", Shown(json.text)));
  }
  RETURN_IF_ERROR(ReadParam(field, name, json, &draft->call.params));
  MarkGiven(field.name, name, draft);
  draft->texts.push_back({field.name, json.text});
  return absl::OkStatus();
}

void MarkGiven(std::string_view param, std::string_view name,
               CallDraft* draft) {
  draft->call.given.push_back({param, name});
}

absl::Status CheckElements(std::string_view name, const JsonText& json,
                           const Limits& limits) {
  if (json.num_values <= limits.max_list_elements) return absl::OkStatus();
  return InvalidField(FieldName{name}, " must have at most ",
                      Limit(limits.max_list_elements),
                      " elements (--max-list-elements)", Got(json.num_values));
}

}  // namespace espalier::openai
