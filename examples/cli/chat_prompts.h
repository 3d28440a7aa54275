// ChatPrompts: what --chat makes of a user's text, and a request's messages
// become: the model's chat template around them, and the tokens of that.
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
#include "text/tokenizer.h"

namespace espalier::cli {

class ChatPrompts {
 public:
  // Of the model in `directory`; `system` stands before every text.
  // Errors: kFailedPrecondition if the model has no tokenizer or no chat
  // template, which `wanted_by` needs; as ChatTemplate::Load.
  static absl::StatusOr<std::unique_ptr<const ChatPrompts>> Load(
      const std::string& directory, std::shared_ptr<const Tokenizer> tokenizer,
      std::string_view wanted_by, const std::string& system = "");

  // The prompt of a conversation of `text` alone, behind the system's words.
  // Errors: kInvalidArgument if it is not UTF-8, if the template refuses it, or
  // if the prompt is longer than `max_context` tokens.
  absl::StatusOr<std::vector<TokenId>> Make(const std::string& text,
                                            int max_context) const;
  // The prompt of a conversation.
  // Errors: as Make.
  absl::StatusOr<std::vector<TokenId>> Make(json::array messages,
                                            int max_context) const;

  // The two steps of Make: what the template writes, and the tokens of it.
  // Errors: as ChatTemplate::Render and EncodeChat.
  absl::StatusOr<jinja::Text> Render(json::array messages) const;
  absl::StatusOr<std::vector<TokenId>> Encode(
      const jinja::Text& rendered,
      int max_context = std::numeric_limits<int>::max()) const;

 private:
  ChatPrompts(std::unique_ptr<ChatTemplate> chat, std::string system,
              std::shared_ptr<const Tokenizer> tokenizer);

  const std::unique_ptr<const ChatTemplate> template_;
  const std::string system_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const SpecialTokenNames names_;
};

}  // namespace espalier::cli
