// ChatTemplate: how a model's directory makes a prompt of a conversation, as
// transformers' apply_chat_template does: by chat_template.jinja, or else by
// "chat_template" of tokenizer_config.json, a string or a list of
// {"name", "template"} of which "default" is taken. docs/chat.md says what
// templates may use.
//
// The files need not be trusted (text/jinja/template.h).
//
//   ASSIGN_OR_RETURN(const auto tokenizer,
//                    Tokenizer::LoadDirectory("models/chat"));
//   ASSIGN_OR_RETURN(const auto chat,
//                    ChatTemplate::Load("models/chat", tokenizer.get()));
//   if (chat == nullptr) ...  // the model has none
//   ChatInputs inputs;
//   inputs.messages = {{{"role", "user"}, {"content", "Hello!"}}};
//   ASSIGN_OR_RETURN(const jinja::Text text, chat->Render(inputs));
//   ASSIGN_OR_RETURN(auto prompt, EncodeChat(text, *tokenizer));
//
// examples/conversation/conversation.cc is a whole program.
//
// Thread safety: constant after Load; any thread may render.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/json.h"
#include "text/jinja/template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Inputs of a rendering.
struct ChatInputs {
  // Objects with "role", "content" and what else the template looks at, such as
  // "tool_calls".
  json::array messages;
  json::value tools = nullptr;      // a list of JSON schemas, or null
  json::value documents = nullptr;  // a list, or null
  // Ends the prompt where the assistant's answer begins.
  bool add_generation_prompt = true;
  // Ends the prompt where the content of the last message does, so that the
  // model continues it (text/chat/final_message.h). Excludes
  // add_generation_prompt.
  bool continue_final_message = false;
  // Further variables of the template, by name, such as "enable_thinking".
  json::object more = {};
  absl::Time now = absl::Now();  // what strftime_now shows, in local time
};

class ChatTemplate {
 public:
  // A special token by its role, as tokenizer_config.json names it: "bos_token"
  // and its text.
  using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

  // The template of a model directory; null if it has none. `tokenizer`, which
  // is that of the directory, has the special tokens that the directory's files
  // say nothing of, such as those of a tokenizer.model; null: templates write
  // nothing for these.
  // Errors: as ReadFile, but for missing files; kInvalidArgument naming the
  // file and the field, or the line of a template, and what is wrong.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(
      const std::string& directory, const Tokenizer* tokenizer);

  // The template that `source` is, with these special tokens.
  // Errors: as jinja::Template::Parse.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Parse(
      std::string_view source, SpecialTokens special_tokens);

  // The prompt. What comes from `inputs` is marked as an input, but for "role"
  // where it is one of the usual names (system, user, assistant, tool,
  // developer, function): templates make special tokens of them. Special tokens
  // of the model and what the template says itself are not.
  // Errors: kInvalidArgument naming the input, or the template's file and line,
  // also for what the template raises, such as roles in an order that it does
  // not take; kResourceExhausted if the template takes too much.
  absl::StatusOr<jinja::Text> Render(const ChatInputs& inputs) const;

  const std::string& source() const { return source_; }
  // The file that it was read from; empty after Parse.
  const std::string& path() const { return path_; }
  // Names in the list of templates that has the "default", in the file's order;
  // empty if the file has a single template.
  const std::vector<std::string>& names() const { return names_; }

 private:
  ChatTemplate() = default;

  absl::StatusOr<jinja::Text> RenderToFinal(ChatInputs inputs) const;

  // Constant after construction.
  std::unique_ptr<const jinja::Template> template_;
  std::string source_;
  SpecialTokens special_tokens_;
  std::string path_;
  std::vector<std::string> names_;
};

}  // namespace espalier
