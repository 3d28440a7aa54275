#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "text/tokenizer/byt5_tokenizer.h"
#include "text/tokenizer/directory_tokenizer.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/m2m100_tokenizer.h"
#include "text/tokenizer/marian_tokenizer.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"
#include "text/tokenizer/t5_tokenizer.h"

namespace espalier {
namespace {

constexpr std::string_view kJsonName = "tokenizer.json";
constexpr std::string_view kByt5File = "tokenizer_config.json";

absl::StatusOr<bool> IsThere(const std::string& path) {
  std::error_code error;
  const bool is_there = std::filesystem::exists(path, error);
  if (!error) return is_there;
  return FailedPrecondition("cannot read ", path, ": ", error.message());
}

// The files of a tokenizer with several, and the one that identifies its kind.
struct TokenizerFiles {
  std::string_view kind;
  std::vector<std::string_view> names;
};
TokenizerFiles FilesWith(std::string_view file, bool has_list) {
  if (file == "source.spm") {
    return {"a Marian tokenizer",
            {"source.spm", "target.spm",
             has_list ? "shared_vocabulary.json" : "vocab.json"}};
  }
  if (file == "merges.txt") {
    return {"a GPT-2, BART or Qwen tokenizer", {"merges.txt", "vocab.json"}};
  }
  return {"", {}};
}

// Errors: kNotFound naming those of the tokenizer's files that are not there.
absl::Status CheckFilesWith(const std::string& directory,
                            std::string_view file) {
  // CTranslate2's, in place of a vocab.json.
  ASSIGN_OR_RETURN(const bool has_list,
                   IsThere(directory + "/shared_vocabulary.json"));
  ASSIGN_OR_RETURN(const bool has_numbers, IsThere(directory + "/vocab.json"));
  const TokenizerFiles files = FilesWith(file, has_list && !has_numbers);
  std::vector<std::string> all, missing;
  for (const std::string_view name : files.names) {
    ASSIGN_OR_RETURN(const bool is_there,
                     IsThere(Concat(directory, "/", name)));
    all.emplace_back(name);
    if (!is_there) missing.emplace_back(name);
  }
  if (missing.empty()) return absl::OkStatus();
  return NotFound(directory, " has ", file, " and no ",
                  absl::StrJoin(missing, " or "), ": ", files.kind, " is ",
                  JoinWithAnd(all), "; put there what the model comes with");
}

// True if no file beside a tokenizer.model has settings of its tokens.
absl::StatusOr<bool> IsAlone(const std::string& directory) {
  for (const char* const name : {"tokenizer_config.json", "added_tokens.json",
                                 "special_tokens_map.json"}) {
    ASSIGN_OR_RETURN(const bool is_there,
                     IsThere(Concat(directory, "/", name)));
    if (is_there) return false;
  }
  return true;
}

// The first `length` bytes of `text` or some less, up to the last space among
// them, where no token is cut in two; or a character.
// REQUIRES: well-formed UTF-8 of more than `length` bytes.
std::string_view Beginning(std::string_view text, size_t length) {
  const size_t space = text.substr(0, length).rfind(' ');
  if (space != std::string_view::npos && space > length / 2) {
    return text.substr(0, space);
  }
  while ((static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  return text.substr(0, length);
}

}  // namespace

Tokenizer::Tokenizer(Parts parts)
    : spellings_(std::move(parts.spellings)),
      special_(std::move(parts.special)),
      special_tokens_(parts.special_tokens),
      before_text_(std::move(parts.before_text)),
      after_text_(std::move(parts.after_text)),
      languages_(std::move(parts.languages)) {
  std::ranges::sort(special_);
}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(
    const std::string& path) {
  if (!path.ends_with(kJsonName)) return SentencePieceTokenizer::Load(path);
  const size_t slash = path.find_last_of('/');
  const bool has_folder = slash != std::string::npos;
  return LoadDirectoryTokenizer(has_folder ? path.substr(0, slash) : ".",
                                path.substr(has_folder ? slash + 1 : 0));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::LoadDirectory(
    const std::string& directory) {
  ASSIGN_OR_RETURN(const auto file, FileOf(directory));
  if (!file) return nullptr;
  RETURN_IF_ERROR(CheckFilesWith(directory, *file));
  if (*file == "source.spm") return LoadMarianTokenizer(directory);
  if (*file == "spiece.model") return LoadT5Tokenizer(directory);
  if (*file == kByt5File) return LoadByt5Tokenizer(directory);
  if (*file == "sentencepiece.bpe.model") {
    ASSIGN_OR_RETURN(const bool has_numbers,
                     IsThere(directory + "/vocab.json"));
    if (has_numbers) return LoadM2m100Tokenizer(directory);
  }
  if (*file == "tokenizer.model") {
    ASSIGN_OR_RETURN(const bool is_alone, IsAlone(directory));
    if (is_alone) return Load(Concat(directory, "/", *file));
  }
  return LoadDirectoryTokenizer(directory, *file);
}

std::string Tokenizer::FileNames() {
  std::string list;
  for (const std::string_view& name : kFiles) {
    if (!list.empty()) list += &name == std::end(kFiles) - 1 ? " or " : ", ";
    list += name;
  }
  return list;
}

absl::StatusOr<std::optional<std::string_view>> Tokenizer::FileOf(
    const std::string& directory) {
  for (const std::string_view name : kFiles) {
    ASSIGN_OR_RETURN(const bool is_there,
                     IsThere(Concat(directory, "/", name)));
    if (is_there) return std::optional(name);
  }
  ASSIGN_OR_RETURN(const bool is_byt5, IsByt5(directory));
  return is_byt5 ? std::optional(kByt5File) : std::nullopt;
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  if (!IsUtf8(text)) return InvalidArgument("text to encode is not UTF-8");
  const bool is_limited = options.max_tokens < std::numeric_limits<int>::max();
  ASSIGN_OR_RETURN(
      std::vector<TokenId> tokens,
      is_limited ? EncodeText(text, options.parse_special, options.max_tokens)
                 : EncodeText(text, options.parse_special));
  RETURN_IF_ERROR(CheckModelHas(tokens));
  if (options.add_special_tokens) {
    tokens.insert(tokens.begin(), before_text_.begin(), before_text_.end());
    tokens.insert(tokens.end(), after_text_.begin(), after_text_.end());
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::EncodeOutput(
    std::string_view text) const {
  if (!IsUtf8(text)) return InvalidArgument("text to encode is not UTF-8");
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, EncodeOutputText(text));
  RETURN_IF_ERROR(CheckModelHas(tokens));
  return tokens;
}

absl::Status Tokenizer::CheckBeginnings(std::string_view text,
                                        bool parse_special, int max_tokens,
                                        std::string_view remark) const {
  // Texts have about four bytes a token.
  constexpr size_t kFirstBytes = 16, kGrowth = 4;
  const size_t num_tokens = static_cast<size_t>(std::max(max_tokens, 1));
  const size_t longest = std::max<size_t>(spellings_.max_bytes(), 1);
  // A cut only changes the tokens at the end of a beginning, which are far
  // fewer than the second `num_tokens`.
  for (size_t length = kFirstBytes * num_tokens + longest; length < text.size();
       length *= kGrowth) {
    const std::string_view beginning = Beginning(text, length);
    ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                     EncodeText(beginning, parse_special));
    if (ids.size() <= 2 * num_tokens) continue;
    return MakeError(absl::StatusCode::kOutOfRange, "the first ",
                     beginning.size(), " of ", text.size(),
                     " bytes of the text", remark, " are ", ids.size(),
                     " tokens, more than ", max_tokens);
  }
  return absl::OkStatus();
}

void Tokenizer::MarkSpecial(std::span<const TokenId> tokens) {
  std::vector<TokenId> marked;
  for (const TokenId token : tokens) {
    if (is_special(token) || !IsAdded(token)) continue;
    spellings_.Remove(token);
    special_.insert(std::ranges::upper_bound(special_, token), token);
    marked.push_back(token);
  }
  OnMarkedSpecial(marked);
}

absl::StatusOr<std::string> Tokenizer::Decode(
    std::span<const TokenId> tokens, const DecodeOptions& options) const {
  const auto bad =
      std::ranges::find_if(tokens, [](TokenId token) { return token < 0; });
  if (bad != tokens.end()) {
    return InvalidArgument("token ", *bad, " at index ", bad - tokens.begin(),
                           " is negative");
  }
  const auto is_shown = [&](TokenId token) {
    return options.show_special && is_special(token);
  };
  const auto first_shown = std::ranges::find_if(tokens, is_shown);
  std::vector<TokenId> opening;
  std::copy_if(tokens.begin(), first_shown, std::back_inserter(opening),
               [&](TokenId token) {
                 return spellings_.Of(token).kind != SpellingKind::kOutside;
               });
  ASSIGN_OR_RETURN(std::string text, DecodeText(opening));
  IncrementalDetokenizer detokenizer(*this, /*is_opening=*/false,
                                     options.show_special);
  for (auto token = first_shown; token != tokens.end(); ++token) {
    detokenizer.Feed(*token, &text);
  }
  detokenizer.Finish(&text);
  return text;
}

absl::StatusOr<std::string> Tokenizer::DecodeText(
    const std::vector<TokenId>& tokens) const {
  IncrementalDetokenizer detokenizer(*this);
  std::string text;
  for (const TokenId token : tokens) detokenizer.Feed(token, &text);
  detokenizer.Finish(&text);
  return text;
}

absl::Status Tokenizer::CheckModelHas(std::span<const TokenId> tokens) const {
  if (vocab_size() <= model_vocab_size_) return absl::OkStatus();
  const auto lacking = std::ranges::find_if(
      tokens, [&](TokenId token) { return token >= model_vocab_size_; });
  if (lacking == tokens.end()) return absl::OkStatus();
  return InvalidArgument("the text has ", ShownInQuotes(Piece(*lacking)),
                         ", token ", *lacking,
                         ", which the model lacks: its vocabulary has ",
                         model_vocab_size_, " tokens");
}

bool Tokenizer::is_special(TokenId token) const {
  return std::ranges::binary_search(special_, token);
}

const PieceMatcher& Tokenizer::special_names() const {
  std::call_once(names_flag_, [&] {
    std::vector<std::pair<std::string, TokenId>> names;
    for (const TokenId token : special_) {
      std::string name = Piece(token);
      if (!name.empty()) names.emplace_back(std::move(name), token);
    }
    std::ranges::sort(names);
    const auto has_same_name = [](const auto& a, const auto& b) {
      return a.first == b.first;
    };
    names.erase(std::unique(names.begin(), names.end(), has_same_name),
                names.end());
    special_names_ = PieceMatcher(std::move(names));
  });
  return special_names_;
}

std::string_view Tokenizer::UnparsedSpecial(
    std::string_view text, std::span<const TokenId> tokens) const {
  const PieceMatcher& names = special_names();
  std::optional<std::unordered_set<TokenId>> parsed;  // made for the first name
  for (size_t i = 0; i < text.size(); ++i) {
    const auto name = names.At(text, i);
    if (!name) continue;
    if (!parsed) parsed.emplace(tokens.begin(), tokens.end());
    if (!parsed->contains(name->token)) return text.substr(i, name->size);
  }
  return {};
}

}  // namespace espalier
