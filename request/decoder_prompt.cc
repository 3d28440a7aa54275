#include "request/decoder_prompt.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/param_checks.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

bool BeginsWith(std::span<const int64_t> tokens,
                std::span<const TokenId> start) {
  return tokens.size() >= start.size() &&
         std::equal(start.begin(), start.end(), tokens.begin());
}

// Returns `tokens` without `start`, the model's own decoder start, if they
// begin with it.
std::span<const int64_t> OwnTokens(std::span<const TokenId> start,
                                   std::span<const int64_t> tokens) {
  return BeginsWith(tokens, start) ? tokens.subspan(start.size()) : tokens;
}

// Returns the tokens that the decoder begins with before those of the request
// that do not repeat them.
std::span<const TokenId> StartOf(const ModelDescription& model,
                                 std::span<const int64_t> tokens) {
  if (!model.encoder) return {};
  const std::span<const TokenId> start = model.encoder->decoder_prompt;
  const bool replaces =
      model.encoder->features && !tokens.empty() && !BeginsWith(tokens, start);
  return replaces ? std::span<const TokenId>() : start;
}

absl::Status CheckOneDecoderPrompt(const GenerationParams& params) {
  const std::string& text = params.decoder_prompt;
  const auto& tokens = params.decoder_prompt_tokens;
  if (text.empty() || tokens.empty()) return absl::OkStatus();
  return InvalidField(
      "`decoder_prompt` and `decoder_prompt_tokens` both say how the output "
      "begins: give one of the two",
      Got(ShownInQuotes(text), " and ", Pluralize(tokens.size(), "token")));
}

absl::Status NoTokensOfText(const std::string& text) {
  return InvalidField(
      "`decoder_prompt` must be empty without a tokenizer, which "
      "makes `decoder_prompt_tokens` of it",
      Got(ShownInQuotes(text)));
}

// Returns the error of a text with more tokens than there is room for after
// `num_before`, which counts the decoder's start and a forced token.
absl::Status TextTooLong(const ModelDescription& model, int64_t num_before,
                         std::string_view got) {
  return InvalidField(
      "`decoder_prompt` must have at most ",
      Pluralize(std::max<int64_t>(0, model.max_context - num_before - 1),
                "token"),
      model.encoder ? " (the decoder's" : " (the model's", " context of ",
      ContextLimit{model.max_context}, " less ", Pluralize(num_before, "token"),
      " that it begins with and one to generate)", Got(got));
}

// The tokens of a text that stands after `num_before` others.
absl::StatusOr<std::vector<TokenId>> Encode(const Tokenizer& tokenizer,
                                            const std::string& text,
                                            const ModelDescription& model,
                                            int64_t num_before) {
  if (!IsUtf8(text)) return InvalidField("`decoder_prompt` is not UTF-8");
  const int max_tokens = model.max_context;
  // EncodeOutput takes any length, so this keeps far too long texts from it:
  // what is far too many pieces of the source's vocabulary is of the target's,
  // too.
  if (std::ssize(text) > max_tokens &&
      absl::IsOutOfRange(
          tokenizer.Encode(text, {.max_tokens = max_tokens}).status())) {
    return TextTooLong(model, num_before,
                       Concat("a text of ", text.size(), " bytes"));
  }
  absl::StatusOr<std::vector<TokenId>> tokens = tokenizer.EncodeOutput(text);
  if (!tokens.ok()) return AnnotateField(tokens.status(), "decoder_prompt");
  if (tokens->empty() && text.find_first_not_of(" \t\r\n") == text.npos) {
    return InvalidField("`decoder_prompt` must not be blank",
                        Got(ShownInQuotes(text)),
                        "; leave it out where nothing is to begin the output");
  }
  if (tokens->empty()) {
    return InvalidField(
        "`decoder_prompt` must have a token in the model's vocabulary, or be "
        "left out",
        Got(ShownInQuotes(text)));
  }
  if (num_before + std::ssize(*tokens) < max_tokens) return tokens;
  return TextTooLong(model, num_before, Concat(tokens->size()));
}

}  // namespace

absl::StatusOr<NamedValues> ResolveDecoderPrompt(
    const Tokenizer* tokenizer, const ModelDescription& model,
    const GenerationDefaults& defaults, GenerationParams* params) {
  const std::string& text = params->decoder_prompt;
  if (text.empty()) return NamedValues();
  RETURN_IF_ERROR(CheckOneDecoderPrompt(*params));
  if (tokenizer == nullptr) return NoTokensOfText(text);
  NamedValues taken;
  std::vector<int64_t> all;
  if (params->forced_bos_token_id) {
    RETURN_IF_ERROR(CheckTokens("forced_bos_token_id",
                                std::span(&*params->forced_bos_token_id, 1),
                                model.vocab_size));
    all.push_back(*params->forced_bos_token_id);
  } else if (model.encoder && defaults.params.forced_bos_token_id) {
    const int64_t token = *defaults.params.forced_bos_token_id;
    all.push_back(token);
    taken.emplace_back("forced_bos_token_id", std::to_string(token));
  }
  const std::span<const TokenId> start = StartOf(model, all);
  const int64_t num_before =
      std::ssize(start) + std::ssize(OwnTokens(start, all));
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                   Encode(*tokenizer, text, model, num_before));
  all.insert(all.end(), tokens.begin(), tokens.end());
  params->decoder_prompt_tokens = std::move(all);
  params->forced_bos_token_id.reset();
  params->decoder_prompt.clear();
  return taken;
}

absl::Status ValidateDecoderPrompt(const ModelDescription& model,
                                   const GenerationParams& params) {
  const std::string& text = params.decoder_prompt;
  const auto& tokens = params.decoder_prompt_tokens;
  if (text.empty() && tokens.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckOneDecoderPrompt(params));
  if (!text.empty()) return NoTokensOfText(text);
  RETURN_IF_ERROR(
      CheckTokens("decoder_prompt_tokens", tokens, model.vocab_size));
  const size_t num_own = OwnTokens(StartOf(model, tokens), tokens).size();
  RETURN_IF_ERROR(CheckHavePositions(model, "decoder_prompt_tokens", tokens,
                                     tokens.size() - num_own));
  // Tokens that only repeat the start leave the next token open.
  if (!params.forced_bos_token_id || num_own == 0) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`forced_bos_token_id` must be unset with `decoder_prompt_tokens`, which "
      "say what comes first",
      Got(*params.forced_bos_token_id));
}

absl::Status AppendDecoderPrompt(const ModelDescription& model,
                                 Request* request) {
  std::vector<int64_t>& own = request->params.decoder_prompt_tokens;
  if (model.encoder) return absl::OkStatus();
  RETURN_IF_ERROR(ValidateDecoderPrompt(model, request->params));
  request->prompt_tokens.insert(request->prompt_tokens.end(), own.begin(),
                                own.end());
  if (request->num_continued) *request->num_continued += std::ssize(own);
  own.clear();
  return absl::OkStatus();
}

std::vector<TokenId> DecoderPromptOf(const ModelDescription& model,
                                     const GenerationParams& params) {
  const std::span<const TokenId> start =
      StartOf(model, params.decoder_prompt_tokens);
  std::vector<TokenId> tokens(start.begin(), start.end());
  for (const int64_t token : OwnTokens(start, params.decoder_prompt_tokens)) {
    tokens.push_back(static_cast<TokenId>(token));
  }
  return tokens;
}

std::span<const TokenId> AfterStart(const ModelDescription& model,
                                    std::span<const TokenId> decoder_prompt) {
  if (!model.encoder) return decoder_prompt;
  const std::vector<TokenId>& start = model.encoder->decoder_prompt;
  const bool has_start =
      decoder_prompt.size() >= start.size() &&
      std::equal(start.begin(), start.end(), decoder_prompt.begin());
  return decoder_prompt.subspan(has_start ? start.size() : 0);
}

int64_t NumContextTokens(const ModelDescription& model,
                         int64_t num_prompt_tokens,
                         const GenerationParams& params) {
  const std::span<const TokenId> start =
      StartOf(model, params.decoder_prompt_tokens);
  const int64_t num_own =
      std::ssize(OwnTokens(start, params.decoder_prompt_tokens));
  return (model.encoder ? std::ssize(start) : num_prompt_tokens) + num_own;
}

absl::StatusOr<std::string> DecoderPromptText(const Tokenizer& tokenizer,
                                              std::span<const int64_t> tokens) {
  return tokenizer.Decode(std::vector<TokenId>(tokens.begin(), tokens.end()));
}

std::string_view ForceFirstOutput(const ModelDescription& model,
                                  std::optional<TokenId> token,
                                  GenerationParams* params) {
  const std::span<const int64_t> tokens = params->decoder_prompt_tokens;
  if (!token || params->forced_bos_token_id ||
      !OwnTokens(StartOf(model, tokens), tokens).empty()) {
    return "";
  }
  const bool is_restricted = params->constraint || params->allowed_sequences;
  // ResolveDecoderPrompt puts a forced token in front of a text.
  if (is_restricted && params->decoder_prompt.empty()) {
    params->decoder_prompt_tokens = {*token};
    return "decoder_prompt_tokens";
  }
  params->forced_bos_token_id = *token;
  return "forced_bos_token_id";
}

}  // namespace espalier
