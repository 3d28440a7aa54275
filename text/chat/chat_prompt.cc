#include "text/chat/chat_prompt.h"

#include <algorithm>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

using Match = SpecialTokenNames::Match;

// The texts between `matches`, each by itself, and these.
absl::StatusOr<std::vector<TokenId>> EncodeAround(
    std::string_view text, const std::vector<Match>& matches,
    const Tokenizer& tokenizer, int max_tokens) {
  std::vector<TokenId> tokens;
  const auto add_text = [&](size_t begin, size_t end) -> absl::Status {
    if (begin == end) return absl::OkStatus();
    const int64_t left = int64_t{max_tokens} - std::ssize(tokens);
    if (left <= 0) {
      return MakeError(absl::StatusCode::kOutOfRange, "more than ", max_tokens,
                       " tokens");
    }
    ASSIGN_OR_RETURN(const std::vector<TokenId> more,
                     tokenizer.Encode(text.substr(begin, end - begin),
                                      {.max_tokens = static_cast<int>(left)}));
    tokens.insert(tokens.end(), more.begin(), more.end());
    return absl::OkStatus();
  };
  size_t begin = 0;
  for (const Match& match : matches) {
    RETURN_IF_ERROR(add_text(begin, match.begin));
    tokens.push_back(match.token);
    begin = match.begin + match.size;
  }
  RETURN_IF_ERROR(add_text(begin, text.size()));
  return tokens;
}

// True if the tokenizer finds a special token between `matches`, for example by
// another spelling that the normalizer maps to one.
absl::StatusOr<bool> AnySpecialBetween(std::string_view text,
                                       const std::vector<Match>& matches,
                                       const Tokenizer& tokenizer,
                                       int max_tokens) {
  size_t begin = 0;
  for (size_t i = 0; i <= matches.size(); ++i) {
    const size_t end = i < matches.size() ? matches[i].begin : text.size();
    ASSIGN_OR_RETURN(
        const std::vector<TokenId> tokens,
        tokenizer.Encode(text.substr(begin, end - begin),
                         {.parse_special = true, .max_tokens = max_tokens}));
    const auto is_special = [&](TokenId token) {
      return tokenizer.is_special(token);
    };
    if (std::ranges::any_of(tokens, is_special)) return true;
    if (i < matches.size()) begin = end + matches[i].size;
  }
  return false;
}

// All of it at once, if that finds the special tokens that `matches` are, and
// these alone; else nothing: a tokenizer may find names where their bytes are
// not. As many names, one there and another not here, are not enough.
absl::StatusOr<std::vector<TokenId>> EncodeWhole(
    std::string_view text, const std::vector<Match>& matches,
    const Tokenizer& tokenizer, int max_tokens) {
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   tokenizer.Encode(text, {.parse_special = true,
                                           .max_tokens = max_tokens}));
  auto match = matches.begin();
  for (const TokenId token : tokens) {
    if (!tokenizer.is_special(token)) continue;
    if (match == matches.end() || match->token != token)
      return std::vector<TokenId>();
    ++match;
  }
  if (match != matches.end()) return std::vector<TokenId>();
  ASSIGN_OR_RETURN(const bool has_others,
                   AnySpecialBetween(text, matches, tokenizer, max_tokens));
  if (has_others) tokens.clear();
  return tokens;
}

}  // namespace

SpecialTokenNames::Match SpecialTokenNames::Find(std::string_view text,
                                                 size_t begin) const {
  for (size_t i = begin; i < text.size(); ++i) {
    if (const auto name = names_->At(text, i)) {
      return {i, name->size, name->token};
    }
  }
  return {};
}

std::vector<Match> SpecialTokenNames::FindInTemplate(
    const jinja::Text& text) const {
  std::vector<Match> matches;
  for (const jinja::Text::Run& run : text.Runs()) {
    if (run.is_input) continue;
    // A name must end before the run does.
    const std::string_view upto =
        std::string_view(text.bytes()).substr(0, run.end);
    for (Match match = Find(upto, run.begin); match.size > 0;
         match = Find(upto, match.begin + match.size)) {
      matches.push_back(match);
    }
  }
  return matches;
}

bool SpecialTokenNames::AnyTouchesInput(const jinja::Text& text) const {
  const std::vector<jinja::Text::Run> runs = text.Runs();
  auto run = runs.begin();
  const std::string_view bytes = text.bytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    while (run->end <= i) ++run;
    // If the longest name here is the template's, so are all shorter ones.
    const auto name = names_->At(bytes, i);
    if (!name) continue;
    if (run->is_input || i + name->size > run->end) return true;
  }
  return false;
}

absl::StatusOr<std::vector<TokenId>> EncodeChat(const jinja::Text& text,
                                                const Tokenizer& tokenizer,
                                                const SpecialTokenNames& names,
                                                int max_tokens) {
  if (text.empty()) {
    return InvalidArgument("the chat template makes an empty prompt");
  }
  const std::vector<Match> matches = names.FindInTemplate(text);
  if (!names.AnyTouchesInput(text)) {
    ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                     EncodeWhole(text.bytes(), matches, tokenizer, max_tokens));
    if (!tokens.empty()) return tokens;
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   EncodeAround(text.bytes(), matches, tokenizer, max_tokens));
  if (!tokens.empty()) return tokens;
  return InvalidArgument("the chat template makes a prompt without a token: ",
                         ShownInQuotes(text.bytes()));
}

absl::StatusOr<std::vector<TokenId>> EncodeChat(const jinja::Text& text,
                                                const Tokenizer& tokenizer,
                                                int max_tokens) {
  return EncodeChat(text, tokenizer, SpecialTokenNames(tokenizer), max_tokens);
}

}  // namespace espalier
