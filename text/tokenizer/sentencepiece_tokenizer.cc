#include "text/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/memory_reserve.h"
#include "base/status.h"
#include "text/tokenizer/sentencepiece_check.h"

// The library puts an absl::string_view of its own, std's, beside Abseil's,
// which makes the name ambiguous. An alias leaves no trace in symbols, so here
// it goes to another namespace.
#define absl espalier_sentencepiece_absl
#include <sentencepiece_processor.h>
#undef absl

namespace espalier {
namespace {

// Approximate memory of the library to encode or decode a text, and to load a
// model.
constexpr size_t kBytesPerText = 64 << 10;
constexpr size_t kBytesPerByte = 256;
constexpr size_t kBytesPerModelByte = 8;

// The models of the largest vocabularies in use stay below 10 MiB.
constexpr size_t kMaxModelBytes = size_t{64} << 20;

// Runs `call`, a call into the library, and returns its status. If memory runs
// out within a list, the library destroys elements that it has not constructed,
// so `num_bytes` are reserved first. Throws std::bad_alloc.
template <typename Call>
absl::Status RunLibrary(size_t num_bytes, const Call& call) {
  try {
    const MemoryReserve reserve(num_bytes);
    const sentencepiece::util::Status status = call();
    return status.ok() ? absl::OkStatus()
                       : Internal("sentencepiece: ", status.message());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return Internal("sentencepiece: ", error.what());
  }
}

using Processor = sentencepiece::SentencePieceProcessor;

// Space character of pieces.
constexpr std::string_view kSpaceSign = "\u2581";

absl::StatusOr<std::string> LibraryDecode(const Processor& processor,
                                          const std::vector<int>& ids) {
  std::string text;
  RETURN_IF_ERROR(RunLibrary(kBytesPerText + kBytesPerByte * ids.size(),
                             [&] { return processor.Decode(ids, &text); }));
  return text;
}

// Returns those of ' ', '\t', '\r' and '\n' at which a run of unknown
// characters ends. Normalization rules decide if they are spaces, and what the
// vocabulary has decides if a space is unknown, too.
absl::StatusOr<std::string> EndsOfRuns(const Processor& processor) {
  constexpr std::string_view kUnknown = "\U0010FFFD";
  std::string ends;
  for (const char end : {' ', '\t', '\r', '\n'}) {
    const std::string text = Concat(kUnknown, std::string(1, end), kUnknown);
    std::vector<std::string> pieces;
    RETURN_IF_ERROR(RunLibrary(
        kBytesPerText, [&] { return processor.Encode(text, &pieces); }));
    const auto is_run = [&](const std::string& piece) {
      return piece.find(kUnknown) != std::string::npos;
    };
    if (std::ranges::count_if(pieces, is_run) > 1) ends += end;
  }
  return ends;
}

// A text that the library encodes in time that is not far from linear. Without
// pieces for bytes it joins unknown characters one by one, each time copying
// those before, which takes a run of them time quadratic in its length.
absl::Status CheckRuns(const Processor& processor, std::string_view text) {
  constexpr size_t kMostBytes = size_t{64} << 10;
  if (text.size() <= kMostBytes) return absl::OkStatus();
  if (processor.IsByte(processor.PieceToId("<0x61>"))) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string ends, EndsOfRuns(processor));
  while (!text.empty()) {
    const size_t size = std::min(text.find_first_of(ends), text.size());
    if (size > kMostBytes) {
      return InvalidArgument(
          "the text must have at most ", kMostBytes,
          " bytes without a space between them, for a vocabulary without "
          "pieces for bytes, got ",
          size);
    }
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  return absl::OkStatus();
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

// Returns the byte of a byte piece, "<0x41>".
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
    spellings->Add(SpellingKind::kBytes, {&byte, 1});
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

// Determines the option by decoding a token that is a space, twice, because the
// library does not expose it. Without such a token at most one space is
// dropped.
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
                                        Processor* processor,
                                        SentencePieceFacts* facts) {
  RETURN_IF_ERROR(CheckSentencePieceModel(model, facts));
  RETURN_IF_ERROR(RunLibrary(kBytesPerModelByte * model.size(), [&] {
    return processor->LoadFromSerializedProto(model);
  }));
  return ReadSpellings(*processor);
}

std::vector<std::pair<std::string, TokenId>> ControlsOf(
    const Processor& processor) {
  std::vector<std::pair<std::string, TokenId>> controls;
  for (TokenId token = 0; token < processor.GetPieceSize(); ++token) {
    // If two entries have the same piece, the library finds only one.
    const std::string& piece = processor.IdToPiece(token);
    if (processor.IsControl(token) && processor.PieceToId(piece) == token) {
      controls.emplace_back(piece, token);
    }
  }
  return controls;
}

std::optional<TokenId> IdOrNone(TokenId id) {
  return id < 0 ? std::nullopt : std::optional(id);
}

// Bytes of the space that `text` begins with, or 0 if it begins with none. What
// has no width counts as well: normalization rules drop it, too.
size_t SpaceLength(std::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return lead == ' ' || (lead >= '\t' && lead <= '\r') ? 1 : 0;
  if (lead == 0xc2) return byte(1) == 0x85 || byte(1) == 0xa0 ? 2 : 0;
  switch (const uint32_t three = lead << 16 | byte(1) << 8 | byte(2)) {
    case 0xe19a80:  // U+1680
    case 0xe280a8:  // U+2028
    case 0xe280a9:  // U+2029
    case 0xe280af:  // U+202F
    case 0xe2819f:  // U+205F
    case 0xe38080:  // U+3000
    case 0xefbbbf:  // U+FEFF
      return 3;
    default:  // U+2000 to U+200F
      return three >= 0xe28080 && three <= 0xe2808f ? 3 : 0;
  }
}

size_t NumSpaceBytes(std::string_view text) {
  size_t num_bytes = 0;
  while (!text.empty()) {
    const size_t length = SpaceLength(text);
    num_bytes += length;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return num_bytes;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(
    std::unique_ptr<Processor> processor, Parts parts,
    const SentencePieceFacts& facts)
    : Tokenizer(std::move(parts)),
      processor_(std::move(processor)),
      controls_(ControlsOf(*processor_)),
      user_defined_(facts.user_defined),
      max_spaces_(facts.max_spaces) {
  std::ranges::sort(user_defined_);
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>>
SentencePieceTokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxModelBytes));
  auto processor = std::make_unique<Processor>();
  SentencePieceFacts facts;
  absl::StatusOr<TokenSpellings> spellings =
      LoadInto(bytes, processor.get(), &facts);
  if (!spellings.ok()) {
    return InvalidArgument(
        path, " is no SentencePiece model: ", Message(spellings.status()));
  }
  std::vector<TokenId> controls;
  for (const auto& [piece, token] : ControlsOf(*processor)) {
    controls.push_back(token);
  }
  Parts parts{.spellings = *std::move(spellings),
              .special = std::move(controls),
              .special_tokens = {.bos = IdOrNone(processor->bos_id()),
                                 .eos = IdOrNone(processor->eos_id()),
                                 .pad = IdOrNone(processor->pad_id()),
                                 .unk = IdOrNone(processor->unk_id())},
              .before_text = {},
              .after_text = {}};
  if (parts.special_tokens.bos) {
    parts.before_text.push_back(*parts.special_tokens.bos);
  }
  return std::unique_ptr<SentencePieceTokenizer>(new SentencePieceTokenizer(
      std::move(processor), std::move(parts), facts));
}

absl::StatusOr<std::vector<TokenId>> SentencePieceTokenizer::EncodePlain(
    std::string_view text) const {
  RETURN_IF_ERROR(CheckRuns(*processor_, text));
  std::vector<int> ids;
  const absl::Status status =
      RunLibrary(kBytesPerText + kBytesPerByte * text.size(),
                 [&] { return processor_->Encode(text, &ids); });
  if (status.ok()) return ids;
  // A character that is a control symbol as well is this symbol to the library
  // where the model joins characters (BPE), and control symbols spell nothing.
  if (Message(status).find("are not consumed") == std::string::npos) {
    return status;
  }
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const auto control = controls_.At(text, begin);
    if (!control) continue;
    return InvalidArgument("the text has ",
                           ShownInQuotes(Piece(control->token)),
                           ", a control symbol that cannot be encoded as text");
  }
  return InvalidArgument(
      "the text has a character that is a control symbol, which cannot be "
      "encoded as text");
}

absl::StatusOr<std::vector<TokenId>> SentencePieceTokenizer::EncodeText(
    std::string_view text, bool parse_special) const {
  if (!parse_special) return EncodePlain(text);
  std::vector<TokenId> tokens;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size();) {
    const bool is_end = i == text.size();
    const auto control = is_end ? std::nullopt : controls_.At(text, i);
    if (!is_end && !control) {
      ++i;
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<TokenId> before,
                     EncodePlain(text.substr(begin, i - begin)));
    tokens.insert(tokens.end(), before.begin(), before.end());
    if (is_end) break;
    tokens.push_back(control->token);
    begin = i += control->size;
  }
  return tokens;
}

std::string_view SentencePieceTokenizer::ShortenSpaces(
    std::string_view text, std::string* shortened) const {
  if (!max_spaces_) return text;
  const size_t most = *max_spaces_;
  size_t copied = 0;  // bytes of `text` that are copied or left out
  for (size_t i = 0; text.size() - i > most;) {
    const size_t other = text.substr(i, most + 1).find_last_not_of(' ');
    if (other != std::string_view::npos) {
      i += other + 1;
      continue;
    }
    *shortened += text.substr(copied, i + most - copied);
    i = std::min(text.find_first_not_of(' ', i + most), text.size());
    copied = i;
  }
  if (copied == 0) return text;
  *shortened += text.substr(copied);
  return *shortened;
}

absl::StatusOr<std::string_view> SentencePieceTokenizer::CheckLength(
    std::string_view whole_text, bool parse_special, int max_tokens,
    std::string* shortened) const {
  const std::string_view text = ShortenSpaces(whole_text, shortened);
  // Normalisation drops spaces, and makes one byte of up to four.
  constexpr size_t kMostShrinking = 4;
  const size_t num_tokens = static_cast<size_t>(std::max(max_tokens, 1));
  const size_t longest = std::max<size_t>(spellings().max_bytes(), 1);
  const size_t most_bytes = kMostShrinking * longest * num_tokens;
  if (text.size() > most_bytes) {
    const size_t num_bytes = text.size() - NumSpaceBytes(text);
    if (num_bytes > most_bytes) {
      return MakeError(absl::StatusCode::kOutOfRange, "the text has ",
                       num_bytes, " bytes beside its spaces; ", max_tokens,
                       " tokens can spell no more than ", most_bytes);
    }
  }
  RETURN_IF_ERROR(CheckBeginnings(text, parse_special, max_tokens,
                                  text.size() < whole_text.size()
                                      ? ", long runs of spaces shortened,"
                                      : ""));
  return text;
}

absl::StatusOr<std::vector<TokenId>> SentencePieceTokenizer::EncodeText(
    std::string_view whole_text, bool parse_special, int max_tokens) const {
  std::string shortened;
  ASSIGN_OR_RETURN(
      const std::string_view text,
      CheckLength(whole_text, parse_special, max_tokens, &shortened));
  return EncodeText(text, parse_special);
}

absl::StatusOr<std::vector<std::string>> SentencePieceTokenizer::EncodeAsPieces(
    std::string_view text, int max_tokens) const {
  std::string shortened;
  if (max_tokens < std::numeric_limits<int>::max()) {
    ASSIGN_OR_RETURN(text, CheckLength(text, /*parse_special=*/false,
                                       max_tokens, &shortened));
  }
  RETURN_IF_ERROR(CheckRuns(*processor_, text));
  std::vector<std::string> pieces;
  RETURN_IF_ERROR(RunLibrary(kBytesPerText + kBytesPerByte * text.size(), [&] {
    return processor_->Encode(text, &pieces);
  }));
  return pieces;
}

void SentencePieceTokenizer::AddSpellingOf(std::string_view piece,
                                           TokenSpellings* table) const {
  const auto own = PieceToId(piece);
  if (!own) {
    table->Add(SpellingKind::kText, WithSpaces(piece));
    return;
  }
  const TokenSpelling spelling = spellings().Of(*own);
  table->Add(spelling.kind, spelling.text);
}

absl::StatusOr<std::string> SentencePieceTokenizer::DecodeText(
    const std::vector<TokenId>& tokens) const {
  return LibraryDecode(*processor_, tokens);
}

bool SentencePieceTokenizer::IsAdded(TokenId token) const {
  return std::ranges::binary_search(user_defined_, Piece(token));
}

std::optional<TokenId> SentencePieceTokenizer::PieceToId(
    std::string_view piece) const {
  // The library returns the unknown symbol for unknown pieces.
  const TokenId id = processor_->PieceToId(piece);
  if (id < 0 || id >= vocab_size()) return std::nullopt;
  if (processor_->IdToPiece(id) != piece) return std::nullopt;
  return id;
}

std::string SentencePieceTokenizer::Piece(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return "";
  return processor_->IdToPiece(token);
}

}  // namespace espalier
