#include "espalier/chat_prompts.h"

#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier {

absl::StatusOr<std::unique_ptr<const ChatPrompts>> ChatPrompts::Load(
    const std::string& directory, std::shared_ptr<const Tokenizer> tokenizer,
    std::string_view wanted_by) {
  if (tokenizer == nullptr) {
    return FailedPrecondition(wanted_by, " needs a tokenizer, and ", directory,
                              " has none");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ChatTemplate> chat,
                   ChatTemplate::Load(directory, tokenizer.get()));
  if (chat == nullptr) {
    return FailedPrecondition(
        wanted_by, " needs a chat template, and ", directory,
        " has neither chat_template.jinja nor chat_template in ",
        "tokenizer_config.json");
  }
  return std::unique_ptr<const ChatPrompts>(
      new ChatPrompts(std::move(chat), std::move(tokenizer)));
}

ChatPrompts::ChatPrompts(std::unique_ptr<ChatTemplate> chat,
                         std::shared_ptr<const Tokenizer> tokenizer)
    : template_(std::move(chat)),
      tokenizer_(std::move(tokenizer)),
      names_(*tokenizer_) {}

absl::StatusOr<std::vector<TokenId>> ChatPrompts::Make(ChatInputs inputs,
                                                       int max_context) const {
  ASSIGN_OR_RETURN(const jinja::Text rendered, Render(inputs));
  absl::StatusOr<std::vector<TokenId>> tokens = Encode(rendered, max_context);
  if (absl::IsInvalidArgument(tokens.status())) {
    return AnnotateField(tokens.status(), "messages");
  }
  if (!absl::IsOutOfRange(tokens.status())) return tokens;
  return InvalidField("`prompt` must fit into the model's context of ",
                      ContextLimit{max_context},
                      max_context == 1 ? " token" : " tokens", ": ",
                      Message(tokens.status()));
}

absl::StatusOr<jinja::Text> ChatPrompts::Render(
    const ChatInputs& inputs) const {
  return template_->Render(inputs);
}

absl::StatusOr<std::vector<TokenId>> ChatPrompts::Encode(
    const jinja::Text& rendered, int max_context) const {
  return EncodeChat(rendered, *tokenizer_, names_, max_context);
}

}  // namespace espalier
