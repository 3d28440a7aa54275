// Turns the prompt of a call, a text or a conversation, into tokens, and its
// decoder prompt, in one way for generation and for /tokenize.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "espalier/chat.h"
#include "espalier/generator.h"
#include "openai/call.h"
#include "openai/server_defaults.h"

namespace espalier::serve {

// A longer body, unless its text is judged by the model's context first, is
// tokenized on a thread of its own: 1 MiB takes up to a second, for which other
// connections of its I/O thread should not wait; this takes some 10 ms.
inline constexpr int64_t kMaxBytesOnIoThread = 64 << 10;

struct PromptTokensOptions {
  // The model's prompt template, or BOS. Unset: true for a text, false for a
  // conversation.
  std::optional<bool> add_special_tokens = {};
  std::string template_name = {};  // for texts; empty: the model's default
  bool parse_special = false;      // for texts
  // A longer prompt is refused.
  int max_tokens = std::numeric_limits<int>::max();
};

// As the call says, for a prompt of any length.
PromptTokensOptions PromptTokensOptionsOf(const openai::Call& call);

// A prompt, and how many of its tokens stand around the text of the client: a
// template's marks, BOS, the EOS of a source.
struct FramedTokens {
  std::vector<TokenId> tokens = {};
  int64_t num_before = 0;
  int64_t num_after = 0;
  // A name of a special token that stayed text; empty: there is none.
  std::string unparsed = {};
};

// The warning of texts with such a name, which a client gets once.
std::string UnparsedWarning(std::string_view name);

// Returns the warning of a chat with tools whose template does not mention
// them, so that its prompt has none; else "".
std::string ToolsWarning(const openai::Call& call, const Generator& generator);

// Errors: as Generator::MakePrompt; kInvalidArgument naming the template.
absl::StatusOr<FramedTokens> TextTokens(const std::string& text,
                                        const PromptTokensOptions& options,
                                        const Generator& generator);

// Errors: as Generator::chat_prompts and ChatPrompts::Make.
absl::StatusOr<FramedTokens> ChatTokens(const ChatInputs& chat,
                                        const PromptTokensOptions& options,
                                        const Generator& generator);

// The content of the message that a conversation continues, as its prompt has
// it.
// REQUIRES: ChatTokens has made one of it.
absl::StatusOr<std::string> FinalMessageOf(const ChatInputs& chat,
                                           const Generator& generator);

// Drops the tokens beyond the call's truncate_prompt_tokens, if it has them,
// but keeps those around the text.
// Errors: kInvalidArgument naming the field, if that leaves nothing of it.
absl::StatusOr<std::vector<TokenId>> TruncatePrompt(
    const openai::Call& call, const ModelDescription& model,
    FramedTokens prompt);

// Makes decoder_prompt_tokens of the call's decoder_prompt, if it has one, and
// forces the language of its template.
// Returns the model's defaults that it takes (ResolveDecoderPrompt).
// Errors: as ResolveDecoderPrompt.
absl::StatusOr<NamedValues> MakeDecoderPrompt(const Generator& generator,
                                              openai::Call* call);

// All that the decoder begins with for the call, defaults of the server
// included; without an encoder the call's decoder prompt.
// Errors: as MakeDecoderPrompt, and ValidateParams of the tokens.
absl::StatusOr<std::vector<TokenId>> DecoderTokens(
    openai::Call call, const openai::ServerDefaults& defaults,
    const Generator& generator);

}  // namespace espalier::serve
