#include "text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/sentencepiece_check.h"

// The library puts an absl::string_view of its own, std's, beside Abseil's,
// which makes the name ambiguous. An alias leaves no trace in symbols, so here
// it goes to another namespace.
#define absl espalier_sentencepiece_absl
#include <sentencepiece_processor.h>
#undef absl

namespace espalier {
namespace {

// The models of the largest vocabularies in use stay below 10 MiB.
constexpr size_t kMaxModelBytes = size_t{64} << 20;

// What `call`, a call into the library, came to.
template <typename Call>
absl::Status RunLibrary(const Call& call) {
  try {
    const sentencepiece::util::Status status = call();
    return status.ok() ? absl::OkStatus()
                       : Internal("sentencepiece: ", status.message());
  } catch (const std::exception& error) {
    return Internal("sentencepiece: ", error.what());
  }
}

using Processor = sentencepiece::SentencePieceProcessor;

// How pieces write a space.
constexpr std::string_view kSpaceSign = "\u2581";

absl::StatusOr<std::string> LibraryDecode(const Processor& processor,
                                          const std::vector<int>& ids) {
  std::string text;
  RETURN_IF_ERROR(RunLibrary([&] { return processor.Decode(ids, &text); }));
  return text;
}

std::string WithSpaces(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const bool is_space = piece.starts_with(kSpaceSign);
    text += is_space ? ' ' : piece.front();
    piece.remove_prefix(is_space ? kSpaceSign.size() : 1);
  }
  return text;
}

// Of a byte piece, "<0x41>".
absl::StatusOr<char> ByteOf(std::string_view piece) {
  uint8_t byte = 0;
  const std::string_view digits =
      piece.size() == 6 ? piece.substr(3, 2) : std::string_view();
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (digits.empty() || result.ptr != digits.data() + digits.size()) {
    return Internal("byte piece ", piece);
  }
  return static_cast<char>(byte);
}

absl::Status AddSpelling(const Processor& processor, TokenId token,
                         TokenSpellings* spellings) {
  const std::string& piece = processor.IdToPiece(token);
  // Decoding goes through the spelling: of two tokens with one spelling, of
  // which one is a symbol, both are the symbol.
  const TokenId id = processor.PieceToId(piece);
  if (processor.IsControl(id)) {
    spellings->Add(SpellingKind::kNothing, "");
  } else if (processor.IsByte(id)) {
    ASSIGN_OR_RETURN(const char byte, ByteOf(piece));
    spellings->Add(SpellingKind::kByte, {&byte, 1});
  } else if (processor.IsUnknown(id)) {
    // Spelt as the model says, not as its piece.
    ASSIGN_OR_RETURN(const std::string text, LibraryDecode(processor, {id}));
    if (!IsUtf8(text)) return Internal("the unknown symbol is not UTF-8");
    spellings->Add(SpellingKind::kText, text);
  } else {
    spellings->Add(piece.starts_with(kSpaceSign) ? SpellingKind::kSpacedText
                                                 : SpellingKind::kText,
                   WithSpaces(piece));
  }
  return absl::OkStatus();
}

// The library does not tell its options, so it is seen by what it makes of a
// token that is a space alone, twice. If none is, one space is the most that
// can fall.
absl::StatusOr<OpeningSpaces> SeeOpeningSpaces(
    const Processor& processor, const TokenSpellings& spellings) {
  std::optional<TokenId> spaced;
  for (TokenId token = 0; token < spellings.vocab_size(); ++token) {
    const TokenSpelling spelling = spellings.Of(token);
    if (spelling.kind != SpellingKind::kSpacedText) continue;
    spaced = token;
    if (spelling.text.size() == 1) break;
  }
  if (!spaced) return OpeningSpaces::kKept;
  ASSIGN_OR_RETURN(const std::string twice,
                   LibraryDecode(processor, {*spaced, *spaced}));
  const size_t num_dropped =
      2 * spellings.Of(*spaced).text.size() - twice.size();
  if (num_dropped == 0) return OpeningSpaces::kKept;
  return num_dropped == 1 ? OpeningSpaces::kFirstDropped
                          : OpeningSpaces::kAllDropped;
}

absl::StatusOr<TokenSpellings> ReadSpellings(const Processor& processor) {
  TokenSpellings spellings;
  for (TokenId token = 0; token < processor.GetPieceSize(); ++token) {
    RETURN_IF_ERROR(AddSpelling(processor, token, &spellings));
  }
  ASSIGN_OR_RETURN(const OpeningSpaces spaces,
                   SeeOpeningSpaces(processor, spellings));
  spellings.set_opening_spaces(spaces);
  return spellings;
}

absl::StatusOr<TokenSpellings> LoadInto(std::string_view model,
                                        Processor* processor) {
  RETURN_IF_ERROR(CheckSentencePieceModel(model));
  RETURN_IF_ERROR(
      RunLibrary([&] { return processor->LoadFromSerializedProto(model); }));
  return ReadSpellings(*processor);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Processor> processor,
                     TokenSpellings spellings)
    : processor_(std::move(processor)), spellings_(std::move(spellings)) {}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxModelBytes));
  auto processor = std::make_unique<Processor>();
  absl::StatusOr<TokenSpellings> spellings = LoadInto(bytes, processor.get());
  if (!spellings.ok()) {
    return InvalidArgument(
        path, " is no SentencePiece model: ", Message(spellings.status()));
  }
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::move(processor), *std::move(spellings)));
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(
    std::string_view text) const {
  if (!IsUtf8(text)) return InvalidArgument("text to encode is not UTF-8");
  std::vector<int> ids;
  RETURN_IF_ERROR(RunLibrary([&] { return processor_->Encode(text, &ids); }));
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(
    std::span<const TokenId> tokens) const {
  const auto bad =
      std::ranges::find_if(tokens, [](TokenId token) { return token < 0; });
  if (bad != tokens.end()) {
    return InvalidArgument("token ", *bad, " at index ", bad - tokens.begin(),
                           " is negative");
  }
  std::vector<int> ids;
  std::ranges::copy_if(tokens, std::back_inserter(ids),
                       [&](TokenId token) { return token < vocab_size(); });
  return LibraryDecode(*processor_, ids);
}

std::optional<TokenId> Tokenizer::PieceToId(std::string_view piece) const {
  // The library answers the unknown symbol for what it does not know.
  const TokenId id = processor_->PieceToId(piece);
  if (id < 0 || id >= vocab_size()) return std::nullopt;
  if (processor_->IdToPiece(id) != piece) return std::nullopt;
  return id;
}

std::string Tokenizer::Piece(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return "";
  return processor_->IdToPiece(token);
}

int Tokenizer::vocab_size() const { return processor_->GetPieceSize(); }

absl::Status Tokenizer::CheckFits(int model_vocab_size) const {
  if (vocab_size() <= model_vocab_size) return absl::OkStatus();
  return InvalidArgument("the tokenizer has ", vocab_size(),
                         " tokens, the model's vocabulary only ",
                         model_vocab_size);
}

std::optional<TokenId> Tokenizer::bos_id() const {
  const TokenId id = processor_->bos_id();
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace espalier
