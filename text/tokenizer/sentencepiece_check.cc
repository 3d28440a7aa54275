#include "text/tokenizer/sentencepiece_check.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/proto_fields.h"

namespace espalier {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 21;
constexpr size_t kMaxPieceBytes = 4096;
// Looking for control symbols may take as much at each place of a text.
constexpr size_t kMaxControlBytes = 256;
// Results of one look-up that the library has room for: PrefixMatcher's
// kResultSize, Normalizer's kMaxTrieResultsSize.
constexpr size_t kMaxNestedSymbols = 64;
constexpr int kMaxNestedRules = 32;
constexpr int kMaxRuleBytes = 256;  // bounds the recursion

// Fields and values of sentencepiece_model.proto.
constexpr uint32_t kPieces = 1;          // in ModelProto
constexpr uint32_t kNormalizerSpec = 3;  // in ModelProto
constexpr uint32_t kDenormalizerSpec = 5;
constexpr uint32_t kPiece = 1;  // in SentencePiece
constexpr uint32_t kType = 3;
constexpr uint32_t kControl = 3;              // a type
constexpr uint32_t kUserDefined = 4;          // a type
constexpr uint32_t kPrecompiledCharsmap = 2;  // in NormalizerSpec
constexpr uint32_t kRemoveExtraWhitespaces = 4;

uint32_t LittleEndian32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i)
    value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// The double array of Darts-clone: the children of unit i are the units (i ^
// offset(i)) ^ label that have this label; a key that ends at i has its value
// in the unit i ^ offset(i).
class TrieCheck {
 public:
  TrieCheck(std::string_view units, size_t num_result_bytes)
      : units_(units),
        num_result_bytes_(num_result_bytes),
        nested_(units.size() / 4, kUnvisited) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const int nested, CountNested(0, 0));
    if (nested <= kMaxNestedRules) return absl::OkStatus();
    return InvalidArgument("precompiled_charsmap: ", nested,
                           " rules begin each other, at most ", kMaxNestedRules,
                           " may");
  }

  // True if a rule begins with `byte`.
  // REQUIRES: Run was OK.
  bool HasRuleFrom(unsigned char byte) const {
    return Label(Unit(Offset(Unit(0)) ^ byte)) == byte;
  }

 private:
  static constexpr int kUnvisited = -1;

  uint32_t Unit(size_t idx) const {
    return LittleEndian32(units_.substr(4 * idx));
  }
  static uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
  static uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
  static bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
  static size_t Offset(uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
  }

  // Returns the maximum number of keys that end along one path from unit `idx`
  // down. A cycle ends at the depth limit. Units may have several parents, and
  // are visited once.
  absl::StatusOr<int> CountNested(size_t idx, int depth) {
    if (nested_[idx] != kUnvisited) return nested_[idx];
    if (depth > kMaxRuleBytes) {
      return InvalidArgument("precompiled_charsmap: a rule of more than ",
                             kMaxRuleBytes, " bytes");
    }
    const uint32_t unit = Unit(idx);
    const size_t base = idx ^ Offset(unit);
    if ((base | 0xFF) >= nested_.size()) {
      return InvalidArgument("precompiled_charsmap: unit ", idx,
                             " leads out of the ", nested_.size());
    }
    int nested = 0;
    for (size_t label = 0; label <= 0xFF; ++label) {
      if (Label(Unit(base ^ label)) != label) continue;
      ASSIGN_OR_RETURN(const int below, CountNested(base ^ label, depth + 1));
      nested = std::max(nested, below);
    }
    if (HasLeaf(unit)) {
      ++nested;
      if (Value(Unit(base)) >= num_result_bytes_) {
        return InvalidArgument("precompiled_charsmap: result at ",
                               Value(Unit(base)), " of ", num_result_bytes_,
                               " bytes");
      }
    }
    return nested_[idx] = nested;
  }

  std::string_view units_;
  size_t num_result_bytes_;
  std::vector<int> nested_;  // by unit
};

// `map` is the size of the trie in bytes, 32 bits; the trie; the results, each
// ended by NUL. Empty, it is no map. Sets `*has_space_rule` if a rule begins
// with a space.
absl::Status CheckCharsmap(std::string_view map, bool* has_space_rule) {
  if (map.empty()) return absl::OkStatus();
  if (map.size() < 4) {
    return InvalidArgument("precompiled_charsmap: ", map.size(), " bytes");
  }
  const size_t trie_bytes = LittleEndian32(map);
  map.remove_prefix(4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= map.size()) {
    return InvalidArgument("precompiled_charsmap: a trie of ", trie_bytes,
                           " bytes in ", map.size());
  }
  if (map.back() != '\0') {
    return InvalidArgument("precompiled_charsmap: the last result has no end");
  }
  TrieCheck trie(map.substr(0, trie_bytes), map.size() - trie_bytes);
  RETURN_IF_ERROR(trie.Run());
  *has_space_rule |= trie.HasRuleFrom(' ');
  return absl::OkStatus();
}

// The rules of the way back to text. A rule's left side may span tokens, so no
// token's text would be certain before the last one.
absl::Status CheckDenormalizer(std::string_view spec) {
  return ForEachField(spec, [](const ProtoField& field) {
    return field.Is(kPrecompiledCharsmap, ProtoField::kBytes) &&
                   !field.bytes.empty()
               ? InvalidArgument("denormalizer_spec has rules")
               : absl::OkStatus();
  });
}

// Space handling of a file's normalizer.
struct SpaceRules {
  bool removes_extra = true;  // the default of the format
  bool has_space_rule = false;
};

absl::Status CheckNormalizer(std::string_view spec, SpaceRules* spaces) {
  return ForEachField(spec, [&](const ProtoField& field) {
    if (field.Is(kRemoveExtraWhitespaces, ProtoField::kVarint)) {
      spaces->removes_extra = field.varint != 0;
    }
    return field.Is(kPrecompiledCharsmap, ProtoField::kBytes)
               ? CheckCharsmap(field.bytes, &spaces->has_space_rule)
               : absl::OkStatus();
  });
}

// Data of a file's pieces that is checked once all have been read.
struct Pieces {
  size_t num_pieces = 0;
  std::vector<std::string_view> user_defined;
};

absl::Status CheckPiece(std::string_view message, Pieces* pieces) {
  if (++pieces->num_pieces > kMaxPieces) {
    return InvalidArgument("more than ", kMaxPieces, " pieces");
  }
  std::string_view piece;
  uint32_t type = 0;
  RETURN_IF_ERROR(ForEachField(message, [&](const ProtoField& field) {
    if (field.Is(kPiece, ProtoField::kBytes)) piece = field.bytes;
    if (field.Is(kType, ProtoField::kVarint)) type = field.varint;
    return absl::OkStatus();
  }));
  if (piece.empty() || piece.size() > kMaxPieceBytes ||
      piece.find('\0') != piece.npos) {
    return InvalidArgument("piece ", pieces->num_pieces - 1, " of ",
                           piece.size(), " bytes must have 1 to ",
                           kMaxPieceBytes, " and no NUL");
  }
  if (type == kControl && piece.size() > kMaxControlBytes) {
    return InvalidArgument("piece ", pieces->num_pieces - 1, " of ",
                           piece.size(), " bytes is a control symbol, which ",
                           "has ", kMaxControlBytes, " at most");
  }
  if (!IsUtf8(piece)) {
    return InvalidArgument("piece ", pieces->num_pieces - 1, " is not UTF-8");
  }
  if (type == kUserDefined) pieces->user_defined.push_back(piece);
  return absl::OkStatus();
}

absl::Status CheckNesting(std::vector<std::string_view> symbols) {
  std::ranges::sort(symbols);
  std::vector<std::string_view> open;  // each begins the next
  for (const std::string_view symbol : symbols) {
    while (!open.empty() && !symbol.starts_with(open.back())) open.pop_back();
    open.push_back(symbol);
    if (open.size() > kMaxNestedSymbols) {
      return InvalidArgument("more than ", kMaxNestedSymbols,
                             " user-defined symbols begin each other");
    }
  }
  return absl::OkStatus();
}

// A rule or symbol that begins before a run of spaces ends within its own
// length. What then is left of the run is one space at most.
std::optional<size_t> MaxSpaces(const SpaceRules& spaces,
                                const std::vector<std::string_view>& symbols) {
  if (!spaces.removes_extra || spaces.has_space_rule) return std::nullopt;
  size_t max_spaces = kMaxRuleBytes;
  for (const std::string_view symbol : symbols) {
    if (symbol.starts_with(' ')) return std::nullopt;
    max_spaces = std::max(max_spaces, symbol.size());
  }
  return max_spaces;
}

}  // namespace

absl::Status CheckSentencePieceModel(std::string_view model,
                                     SentencePieceFacts* facts) {
  Pieces pieces;
  SpaceRules spaces;
  RETURN_IF_ERROR(ForEachField(model, [&](const ProtoField& field) {
    if (field.Is(kPieces, ProtoField::kBytes)) {
      return CheckPiece(field.bytes, &pieces);
    }
    if (field.Is(kNormalizerSpec, ProtoField::kBytes)) {
      return CheckNormalizer(field.bytes, &spaces);
    }
    if (field.Is(kDenormalizerSpec, ProtoField::kBytes)) {
      return CheckDenormalizer(field.bytes);
    }
    return absl::OkStatus();
  }));
  if (facts != nullptr) {
    facts->user_defined.assign(pieces.user_defined.begin(),
                               pieces.user_defined.end());
    facts->max_spaces = MaxSpaces(spaces, pieces.user_defined);
  }
  return CheckNesting(std::move(pieces.user_defined));
}

}  // namespace espalier
