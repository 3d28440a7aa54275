#include "speech/whisper_tokens.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

absl::StatusOr<TokenId> IdOf(const Tokenizer& tokenizer,
                             std::string_view name) {
  const std::optional<TokenId> id = tokenizer.PieceToId(name);
  if (id) return *id;
  return InvalidArgument("the tokenizer has no ", name,
                         ", which a Whisper model has");
}

// A code between the marks, or empty.
std::string CodeOf(std::string_view name) {
  if (name.size() <= 4 || !name.starts_with("<|") || !name.ends_with("|>")) {
    return "";
  }
  return std::string(name.substr(2, name.size() - 4));
}

// Symbols of which each, with a space before it and without, is banned if it is
// one token; of the last ones the first token in any case, which these have in
// common with other pictures.
constexpr std::string_view kSymbols[] = {
    "\"",  "#",  "(",   ")",  "*",  "+",  "/",   ":",  ";",  "<",
    "=",   ">",  "@",   "[",  "\\", "]",  "^",   "_",  "`",  "{",
    "|",   "}",  "~",   "「", "」", "『", "』",  "<<", ">>", "<<<",
    ">>>", "--", "---", "-(", "-[", "('", "(\"", "((", "))", "(((",
    ")))", "[[", "]]",  "{{", "}}", "♪♪", "♪♪♪"};
constexpr std::string_view kPictures[] = {"♩", "♪", "♫", "♬", "♭", "♮", "♯"};
// Within words they are spoken.
constexpr std::string_view kWordMarks[] = {" -", " '"};

}  // namespace

absl::StatusOr<WhisperTokens> WhisperTokens::Find(const Tokenizer& tokenizer,
                                                  bool is_multilingual) {
  WhisperTokens tokens;
  ASSIGN_OR_RETURN(tokens.end_, IdOf(tokenizer, "<|endoftext|>"));
  ASSIGN_OR_RETURN(tokens.start_, IdOf(tokenizer, "<|startoftranscript|>"));
  ASSIGN_OR_RETURN(tokens.translate_, IdOf(tokenizer, "<|translate|>"));
  const char* const no_speech =
      tokenizer.PieceToId("<|nospeech|>") ? "<|nospeech|>" : "<|nocaptions|>";
  for (const auto& [name, id] :
       std::initializer_list<std::pair<const char*, TokenId>>{
           {"<|startoftranscript|>", tokens.end_ + 1},
           {"<|transcribe|>", tokens.transcribe()},
           {"<|startoflm|>", tokens.start_of_lm()},
           {"<|startofprev|>", tokens.start_of_previous()},
           {no_speech, tokens.no_speech()},
           {"<|notimestamps|>", tokens.no_timestamps()}}) {
    ASSIGN_OR_RETURN(const TokenId found, IdOf(tokenizer, name));
    if (found == id) continue;
    return InvalidArgument("the tokenizer's ", name, " must be ", id,
                           ", by the other tokens of Whisper, got ", found);
  }
  if (!is_multilingual) return tokens;
  std::vector<NaturalLanguage> languages;
  for (TokenId id = tokens.start_ + 1; id < tokens.translate_; ++id) {
    std::string code = CodeOf(tokenizer.Piece(id));
    if (code.empty()) {
      return InvalidArgument("the tokenizer's ", id, ", ", tokenizer.Piece(id),
                             ", must be a language such as <|en|>");
    }
    languages.push_back({std::move(code), id});
  }
  if (languages.empty()) {
    return InvalidArgument("the tokenizer has no languages between ",
                           "<|startoftranscript|> and <|translate|>");
  }
  tokens.languages_ = NaturalLanguages(LanguageMark::kSourceFirst,
                                       std::move(languages), tokens.end_);
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> WhisperTokens::NotSpoken(
    const Tokenizer& tokenizer) const {
  std::set<TokenId> banned = {translate(),         transcribe(),  start(),
                              start_of_previous(), start_of_lm(), no_speech()};
  for (const std::string_view mark : kWordMarks) {
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.Encode(mark));
    if (!ids.empty()) banned.insert(ids[0]);
  }
  const auto ban = [&](std::string_view symbol,
                       bool is_picture) -> absl::Status {
    for (const std::string& text : {std::string(symbol), Concat(" ", symbol)}) {
      ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer.Encode(text));
      if (ids.size() == 1 || (is_picture && !ids.empty())) {
        banned.insert(ids[0]);
      }
    }
    return absl::OkStatus();
  };
  for (const std::string_view symbol : kSymbols) {
    RETURN_IF_ERROR(ban(symbol, /*is_picture=*/false));
  }
  for (const std::string_view symbol : kPictures) {
    RETURN_IF_ERROR(ban(symbol, /*is_picture=*/true));
  }
  return std::vector<TokenId>(banned.begin(), banned.end());
}

absl::StatusOr<std::vector<TokenId>> WhisperTokens::NotAtBegin(
    const Tokenizer& tokenizer) const {
  ASSIGN_OR_RETURN(std::vector<TokenId> banned, tokenizer.Encode(" "));
  banned.push_back(end_);
  std::ranges::sort(banned);
  return banned;
}

absl::StatusOr<std::vector<TokenId>> WhisperTokens::PromptOf(
    const WhisperPrompt& prompt, int max_context) const {
  const size_t half = std::max(max_context / 2 - 1, 0);
  for (const std::span<const TokenId> given :
       {prompt.previous, prompt.prefix}) {
    for (const TokenId token : given) {
      if (IsText(token) || IsTime(token)) continue;
      return InvalidArgument("the tokens of a Whisper prompt must be text or ",
                             "times, got ", token);
    }
  }
  if (prompt.prefix.size() > half) {
    return InvalidArgument("a prefix must have at most ", half,
                           " tokens (half ", "of ", max_context,
                           " positions less one), got ", prompt.prefix.size());
  }
  std::vector<TokenId> tokens = {start_};
  if (is_multilingual()) {
    if (prompt.language == nullptr) {
      return InvalidArgument("a multilingual Whisper model needs a language");
    }
    const NaturalLanguage* const language =
        languages_.WithCode(prompt.language->code);
    if (language == nullptr) {
      return InvalidArgument("the Whisper model has no language ",
                             prompt.language->code);
    }
    tokens.push_back(language->token);
    tokens.push_back(prompt.task == SpeechTask::kTranslate ? translate()
                                                           : transcribe());
  } else if (prompt.language != nullptr) {
    return InvalidArgument("an English Whisper model takes no language, got ",
                           prompt.language->code);
  } else if (prompt.task == SpeechTask::kTranslate) {
    return InvalidArgument("an English Whisper model does not translate");
  }
  if (!prompt.has_timestamps) tokens.push_back(no_timestamps());
  if (!prompt.prefix.empty()) {
    if (prompt.has_timestamps) tokens.push_back(first_time());
    tokens.insert(tokens.end(), prompt.prefix.begin(), prompt.prefix.end());
  }
  // Positions left by these, start_of_previous and a token to write.
  const int64_t left = max_context - std::ssize(tokens) - 2;
  const auto kept = prompt.previous.last(
      std::clamp<int64_t>(left, 0, std::min(half, prompt.previous.size())));
  if (kept.empty()) return tokens;
  tokens.insert(tokens.begin(), kept.begin(), kept.end());
  tokens.insert(tokens.begin(), start_of_previous());
  return tokens;
}

}  // namespace espalier
