#include "text/chat/chat_template.h"

#include <algorithm>

#include "base/field_error.h"
#include "base/file.h"
#include "base/status.h"
#include "text/chat/chat_config.h"
#include "text/chat/final_message.h"

namespace espalier {
namespace {

// Roles of which templates make tokens.
constexpr std::string_view kRoles[] = {"assistant", "developer", "function",
                                       "system",    "tool",      "user"};

bool IsUsualRole(std::string_view key, std::string_view text) {
  return key == "role" && std::ranges::count(kRoles, text) > 0;
}

// Set by Render, whatever a caller adds.
constexpr std::string_view kReserved[] = {"messages", "tools", "documents",
                                          "add_generation_prompt"};

absl::Status SetInputs(const ChatInputs& inputs, jinja::Inputs* values) {
  for (const auto& [key, value] : inputs.more) {
    const std::string_view name = key;
    if (std::ranges::count(kReserved, name) > 0) {
      return InvalidArgument("more must not set \"", name, "\"");
    }
    RETURN_IF_ERROR(values->Set(name, value));
  }
  RETURN_IF_ERROR(values->Set("messages", inputs.messages, IsUsualRole));
  RETURN_IF_ERROR(values->Set("tools", inputs.tools));
  RETURN_IF_ERROR(values->Set("documents", inputs.documents));
  return values->Set("add_generation_prompt", inputs.add_generation_prompt);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(
    const std::string& directory, const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(ChatConfig config, ChatConfig::Load(directory, tokenizer));
  std::string path = directory + "/chat_template.jinja";
  std::string where = path;
  std::vector<std::string> names;
  absl::StatusOr<std::string> source =
      ReadFile(path, jinja::Template::kMaxSourceBytes);
  if (absl::IsNotFound(source.status())) {
    if (!config.chat_template) return std::unique_ptr<ChatTemplate>();
    source = *std::move(config.chat_template);
    path = config.path;
    names = std::move(config.template_names);
    where = path + ": chat_template";
  }
  RETURN_IF_ERROR(source.status());
  absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed =
      Parse(*source, std::move(config.special_tokens));
  if (!parsed.ok()) return Annotate(parsed.status(), where);
  (*parsed)->path_ = std::move(path);
  (*parsed)->names_ = std::move(names);
  return parsed;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(
    std::string_view source, SpecialTokens special_tokens) {
  std::unique_ptr<ChatTemplate> chat(new ChatTemplate());
  ASSIGN_OR_RETURN(chat->template_, jinja::Template::Parse(source));
  chat->source_ = source;
  chat->special_tokens_ = std::move(special_tokens);
  return chat;
}

absl::StatusOr<jinja::Text> ChatTemplate::RenderToFinal(
    ChatInputs inputs) const {
  if (inputs.add_generation_prompt) {
    return InvalidField(
        "`add_generation_prompt` must be false with continue_final_message",
        Got("true"));
  }
  inputs.continue_final_message = false;
  ASSIGN_OR_RETURN(const std::string content,
                   MarkFinalMessage(&inputs.messages));
  ASSIGN_OR_RETURN(const jinja::Text text, Render(inputs));
  return CutAtMark(text, content);
}

absl::StatusOr<jinja::Text> ChatTemplate::Render(
    const ChatInputs& inputs) const {
  if (inputs.continue_final_message) return RenderToFinal(inputs);
  jinja::Inputs values;
  for (const auto& [name, text] : special_tokens_) {
    values.SetTrusted(name, text);
  }
  RETURN_IF_ERROR(SetInputs(inputs, &values));
  jinja::RenderOptions options;
  options.now = inputs.now;
  absl::StatusOr<jinja::Text> text = template_->Render(values, options);
  if (text.ok()) return text;
  return Annotate(text.status(), path_.empty() ? "chat template" : path_);
}

}  // namespace espalier
