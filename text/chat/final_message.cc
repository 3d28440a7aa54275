#include "text/chat/final_message.h"

#include <string>

#include "base/field_error.h"
#include "base/status.h"
#include "text/chat/chat_template.h"
#include "text/jinja/text_operations.h"

namespace espalier {
namespace {

// The space shows whether the template trims what ends the content.
constexpr std::string_view kMark = "ESPALIER_CONTINUES_THIS_MESSAGE";
constexpr char kSpace = ' ';

const json::value* MemberOf(const json::value& message, const char* name) {
  return message.is_object() ? message.get_object().if_contains(name) : nullptr;
}

std::string Stripped(std::string_view text, bool at_begin) {
  return jinja::Strip(jinja::Text(std::string(text)), std::nullopt, at_begin,
                      /*at_end=*/true)
      .bytes();
}

std::string FinalMessage(const json::array& messages) {
  return Concat("messages[", messages.size() - 1, "]");
}

}  // namespace

absl::Status SettleFinalMessage(bool field, const bool* adds_prompt,
                                ChatInputs* inputs) {
  const json::array& messages = inputs->messages;
  if (messages.empty()) return absl::OkStatus();
  const json::value* const prefix = MemberOf(messages.back(), "prefix");
  const bool is_prefix = prefix != nullptr && *prefix == true;
  if (!field && !is_prefix) return absl::OkStatus();
  const std::string name =
      field ? "continue_final_message" : FinalMessage(messages) + ".prefix";
  if (adds_prompt != nullptr && *adds_prompt) {
    return InvalidField("`add_generation_prompt` must be false with ", name,
                        ", which continues a message instead of beginning one",
                        Got("true"));
  }
  const json::value* const role = MemberOf(messages.back(), "role");
  if (is_prefix && (role == nullptr || *role != "assistant")) {
    return InvalidField(FieldName{FinalMessage(messages)},
                        ".role must be \"assistant\" with prefix",
                        Got(Shown(role)));
  }
  const json::value* const content = MemberOf(messages.back(), "content");
  if (content == nullptr || !content->is_string()) {
    return InvalidField(FieldName{FinalMessage(messages)},
                        ".content must be a string with ", name,
                        Got(Shown(content)));
  }
  inputs->continue_final_message = true;
  inputs->add_generation_prompt = false;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MarkFinalMessage(json::array* messages) {
  const json::value* const content =
      messages->empty() ? nullptr : MemberOf(messages->back(), "content");
  if (content == nullptr || !content->is_string()) {
    return InvalidArgument(
        "the content of the last message must be a string with ",
        "continue_final_message, got ", Shown(content));
  }
  json::string& text = messages->back().get_object().at("content").get_string();
  std::string unmarked(text);
  text.append(kMark);
  text.push_back(kSpace);
  return unmarked;
}

absl::StatusOr<jinja::Text> CutAtMark(const jinja::Text& rendered,
                                      std::string_view content) {
  const std::string_view bytes = rendered.bytes();
  const size_t mark = bytes.rfind(kMark);
  const std::string stripped = Stripped(content, /*at_begin=*/true);
  if (mark == bytes.npos || bytes.find(stripped) == bytes.npos) {
    return InvalidField(
        "`continue_final_message` must be false with this chat template, which "
        "does not write the content of the last message as it stands");
  }
  const jinja::Text before = rendered.Part(0, mark);
  const size_t end = mark + kMark.size();
  const bool keeps_spaces = end < bytes.size() && bytes[end] == kSpace;
  if (keeps_spaces) return before;
  return jinja::Strip(before, std::nullopt, /*at_begin=*/false,
                      /*at_end=*/true);
}

std::string FinalContent(const jinja::Text& rendered,
                         std::string_view content) {
  if (std::string_view(rendered.bytes()).ends_with(content)) {
    return std::string(content);
  }
  return Stripped(content, /*at_begin=*/false);
}

}  // namespace espalier
