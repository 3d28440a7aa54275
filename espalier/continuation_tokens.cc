#include "espalier/continuation_tokens.h"

#include <algorithm>
#include <utility>
#include <variant>

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

// Of what follows `before`, the tokens of the context's text.
absl::StatusOr<Tokens> TokensAfter(const ContinuationContext& context,
                                   const Tokens& before,
                                   const std::string& text) {
  if (context.text.empty()) return Encode(context, text);
  ASSIGN_OR_RETURN(Tokens whole, Encode(context, context.text + text));
  const bool goes_on = whole.size() > before.size() &&
                       std::equal(before.begin(), before.end(), whole.begin());
  if (!goes_on) return Encode(context, text);
  whole.erase(whole.begin(), whole.begin() + std::ssize(before));
  return whole;
}

// Before any text becomes tokens.
absl::Status CheckTexts(const ContinuationContext& context,
                        const std::vector<TextOrTokens>& continuations) {
  int64_t num_bytes = 0;
  for (size_t i = 0; i < continuations.size(); ++i) {
    const auto* const text = std::get_if<std::string>(&continuations[i]);
    if (text == nullptr) continue;
    if (context.tokenizer == nullptr) {
      return FailedPrecondition("continuations[", i, "] is text, and there is ",
                                "no tokenizer; give tokens");
    }
    if (!IsUtf8(*text)) {
      return InvalidArgument("continuations[", i, "] is not UTF-8");
    }
    num_bytes += std::ssize(*text) + std::ssize(context.text);
  }
  if (num_bytes <= kMaxScoredBytes) return absl::OkStatus();
  return InvalidArgument(
      "continuations must take at most ", kMaxScoredBytes, " bytes of text, ",
      "each with its prompt in front of it, to become tokens, got ", num_bytes,
      "; give them as token ids");
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int64_t>>> ContinuationTokens(
    const ContinuationContext& context,
    const std::vector<TextOrTokens>& continuations) {
  RETURN_IF_ERROR(CheckTexts(context, continuations));
  Tokens before;
  if (!context.text.empty()) {
    ASSIGN_OR_RETURN(before, Encode(context, context.text));
  }
  std::vector<std::vector<int64_t>> all;
  all.reserve(continuations.size());
  for (size_t i = 0; i < continuations.size(); ++i) {
    if (const auto* const ids = std::get_if<Tokens>(&continuations[i])) {
      all.emplace_back(ids->begin(), ids->end());
      continue;
    }
    const std::string& text = std::get<std::string>(continuations[i]);
    const absl::StatusOr<Tokens> tokens = TokensAfter(context, before, text);
    if (!tokens.ok()) {
      return Annotate(tokens.status(), Concat("continuations[", i, "]"));
    }
    if (tokens->empty()) {
      return InvalidArgument("continuations[", i, "] must have a token in the ",
                             "model's vocabulary, got ", ShownInQuotes(text));
    }
    all.emplace_back(tokens->begin(), tokens->end());
  }
  return all;
}

}  // namespace espalier
