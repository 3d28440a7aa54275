#include "examples/cli/chat_prompts.h"

#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier::cli {

absl::StatusOr<std::unique_ptr<const ChatPrompts>> ChatPrompts::Load(
    const RuntimeOptions& options, std::shared_ptr<const Tokenizer> tokenizer) {
  if (!options.chat) return std::unique_ptr<const ChatPrompts>();
  if (tokenizer == nullptr) {
    return FailedPrecondition("--chat needs a tokenizer, and ", options.model,
                              " has none");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ChatTemplate> chat,
                   ChatTemplate::Load(options.model));
  if (chat == nullptr) {
    return FailedPrecondition(
        "--chat needs a chat template, and ", options.model,
        " has neither chat_template.jinja nor chat_template in ",
        "tokenizer_config.json");
  }
  return std::unique_ptr<const ChatPrompts>(
      new ChatPrompts(std::move(chat), options.system, std::move(tokenizer)));
}

ChatPrompts::ChatPrompts(std::unique_ptr<ChatTemplate> chat, std::string system,
                         std::shared_ptr<const Tokenizer> tokenizer)
    : template_(std::move(chat)),
      system_(std::move(system)),
      tokenizer_(std::move(tokenizer)),
      names_(*tokenizer_) {}

absl::StatusOr<std::vector<TokenId>> ChatPrompts::Make(const std::string& text,
                                                       int max_context) const {
  if (!IsUtf8(text)) return InvalidArgument("prompt is not UTF-8");
  if (!IsUtf8(system_)) return InvalidArgument("--system is not UTF-8");
  ChatInputs inputs;
  if (!system_.empty()) {
    inputs.messages.push_back(
        json::object{{"role", "system"}, {"content", system_}});
  }
  inputs.messages.push_back(json::object{{"role", "user"}, {"content", text}});
  ASSIGN_OR_RETURN(const jinja::Text rendered, template_->Render(inputs));
  absl::StatusOr<std::vector<TokenId>> tokens =
      EncodeChat(rendered, *tokenizer_, names_, max_context);
  if (!absl::IsOutOfRange(tokens.status())) return tokens;
  return InvalidArgument("prompt must fit into the model's context of ",
                         Pluralize(max_context, "token"), ": ",
                         Message(tokens.status()));
}

}  // namespace espalier::cli
