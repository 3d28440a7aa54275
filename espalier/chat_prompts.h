// ChatPrompts: renders conversations with a model's chat template
// (docs/chat.md) and encodes the result.
//
// Thread safety: constant after Load; any thread may call.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "text/chat/chat_prompt.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class ChatPrompts {
 public:
  // Loads the chat template of the model in `directory`.
  // Errors: kFailedPrecondition if the model has no tokenizer or no chat
  // template, which `wanted_by` needs; as ChatTemplate::Load.
  static absl::StatusOr<std::unique_ptr<const ChatPrompts>> Load(
      const std::string& directory, std::shared_ptr<const Tokenizer> tokenizer,
      std::string_view wanted_by);

  // Makes the prompt of a conversation.
  // Errors: kInvalidArgument if the template refuses it, or if the prompt is
  // longer than `max_context` tokens.
  absl::StatusOr<std::vector<TokenId>> Make(ChatInputs inputs,
                                            int max_context) const;

  const ChatTemplate& chat_template() const { return *template_; }

  // The two steps of Make: what the template writes, and the tokens of it.
  // Errors: as ChatTemplate::Render and EncodeChat.
  absl::StatusOr<jinja::Text> Render(const ChatInputs& inputs) const;
  absl::StatusOr<std::vector<TokenId>> Encode(
      const jinja::Text& rendered,
      int max_context = std::numeric_limits<int>::max()) const;

 private:
  ChatPrompts(std::unique_ptr<ChatTemplate> chat,
              std::shared_ptr<const Tokenizer> tokenizer);

  const std::unique_ptr<const ChatTemplate> template_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const SpecialTokenNames names_;
};

}  // namespace espalier
