#include "espalier/continuation_tokens.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

using Tokens = std::vector<TokenId>;

absl::StatusOr<Tokens> Encode(const ContinuationContext& context,
                              std::string_view text) {
  return context.is_output ? context.tokenizer->EncodeOutput(text)
                           : context.tokenizer->Encode(text);
}

// The tokens of `whole` after those of `before`; nullopt if it begins with
// others, or has no more.
std::optional<Tokens> Rest(Tokens whole, const Tokens& before) {
  if (whole.size() <= before.size() ||
      !std::equal(before.begin(), before.end(), whole.begin())) {
    return std::nullopt;
  }
  whole.erase(whole.begin(), whole.begin() + std::ssize(before));
  return whole;
}

// Texts of which some stay apart from what follows, in any vocabulary: scripts
// and classes of characters that few pieces join.
constexpr std::string_view kTextsBefore[] = {")", "1", "a", "\u4e2d", "\u0436"};

// The tokens of a text within a text, where no space opens it.
absl::StatusOr<Tokens> TokensWithin(const ContinuationContext& context,
                                    const std::string& text) {
  for (const std::string_view before : kTextsBefore) {
    ASSIGN_OR_RETURN(const Tokens tokens, Encode(context, before));
    if (tokens.empty()) continue;
    ASSIGN_OR_RETURN(Tokens whole, Encode(context, Concat(before, text)));
    std::optional<Tokens> rest = Rest(std::move(whole), tokens);
    if (rest) return *std::move(rest);
  }
  return Tokens();
}

absl::StatusOr<Tokens> TokensOfContext(const ContinuationContext& context) {
  Tokens tokens;
  if (!context.prompt.empty()) {
    ASSIGN_OR_RETURN(tokens, Encode(context, context.prompt));
  }
  if (context.decoder_prompt.empty()) return tokens;
  ASSIGN_OR_RETURN(const Tokens output,
                   context.tokenizer->EncodeOutput(context.decoder_prompt));
  tokens.insert(tokens.end(), output.begin(), output.end());
  return tokens;
}

// The tokens of a text after `context`, which has the tokens `before`.
absl::StatusOr<Tokens> TokensAfter(const ContinuationContext& context,
                                   const Tokens& before,
                                   const std::string& text) {
  if (before.empty()) return Encode(context, text);
  ASSIGN_OR_RETURN(
      Tokens whole,
      Encode(context, Concat(context.prompt, context.decoder_prompt, text)));
  std::optional<Tokens> rest = Rest(std::move(whole), before);
  if (rest) return *std::move(rest);
  return TokensWithin(context, text);
}

// Before any text becomes tokens.
absl::Status CheckTexts(const ContinuationContext& context,
                        const std::vector<TextOrTokens>& continuations) {
  int64_t num_bytes = 0;
  for (size_t i = 0; i < continuations.size(); ++i) {
    const auto* const text = std::get_if<std::string>(&continuations[i]);
    if (text == nullptr) continue;
    if (context.tokenizer == nullptr) {
      return MakeFieldError(
          absl::StatusCode::kFailedPrecondition, "`continuations`[", i,
          "] is text, and there is no tokenizer; give tokens");
    }
    if (!IsUtf8(*text)) {
      return InvalidField("`continuations`[", i, "] is not UTF-8");
    }
    num_bytes += std::ssize(*text) + std::ssize(context.prompt) +
                 std::ssize(context.decoder_prompt);
  }
  if (num_bytes <= kMaxScoredBytes) return absl::OkStatus();
  return InvalidField(
      "`continuations` must take at most ", Limit(kMaxScoredBytes),
      " bytes of text, each with its prompt in front of it, to become tokens",
      Got(num_bytes), "; give them as token ids");
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int64_t>>> ContinuationTokens(
    const ContinuationContext& context,
    const std::vector<TextOrTokens>& continuations) {
  RETURN_IF_ERROR(CheckTexts(context, continuations));
  std::optional<Tokens> before;  // made for the first text
  std::vector<std::vector<int64_t>> all;
  all.reserve(continuations.size());
  for (size_t i = 0; i < continuations.size(); ++i) {
    if (const auto* const ids = std::get_if<Tokens>(&continuations[i])) {
      all.emplace_back(ids->begin(), ids->end());
      continue;
    }
    const std::string& text = std::get<std::string>(continuations[i]);
    if (!before) {
      ASSIGN_OR_RETURN(before, TokensOfContext(context));
    }
    const absl::StatusOr<Tokens> tokens = TokensAfter(context, *before, text);
    if (!tokens.ok()) {
      return AnnotateField(tokens.status(), Concat("continuations[", i, "]"));
    }
    if (tokens->empty()) {
      return InvalidField("`continuations`[", i,
                          "] must have a token in the model's vocabulary",
                          Got(ShownInQuotes(text)));
    }
    all.emplace_back(tokens->begin(), tokens->end());
  }
  return all;
}

}  // namespace espalier
