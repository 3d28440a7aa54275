#include "text/pipeline/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"
#include "base/status.h"
#include "text/pipeline/byte_fallback.h"
#include "text/pipeline/byte_level.h"
#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

// Pieces of more parts are merged with a heap: by then it is no slower.
constexpr size_t kLongestScanned = 24;

constexpr std::string_view kSign = "\u2581";

}  // namespace

BpeModel::MergeTable::MergeTable(const std::vector<Merge>& merges)
    : entries_(std::bit_ceil(2 * merges.size() + 2)),
      mask_(entries_.size() - 1),
      shift_(64 - std::countr_zero(entries_.size())) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t pair = PairOf(merge.left, merge.right);
    size_t slot = SlotOf(pair);
    while (entries_[slot].pair != pair && entries_[slot].pair != kNoPair) {
      slot = (slot + 1) & mask_;
    }
    entries_[slot] = {pair, static_cast<uint32_t>(rank), merge.joined};
  }
}

void BpeModel::MergeTable::Remove(const std::vector<bool>& is_reachable) {
  // Their pairs stay, so that those after them are found.
  for (Entry& entry : entries_) {
    if (entry.joined >= 0 && !is_reachable[entry.joined]) entry.rank = kNoRank;
  }
}

BpeModel::BpeModel(const Vocabulary& vocabulary,
                   const std::vector<Merge>& merges, const BpeOptions& options)
    : vocabulary_(vocabulary),
      merges_(merges),
      options_(options),
      is_reachable_(vocabulary.size(), true) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece;
    if (options_.is_byte_level || byte < 0x80) {
      AppendCharacter(options_.is_byte_level
                          ? CharacterOfByte(static_cast<uint8_t>(byte))
                          : static_cast<char32_t>(byte),
                      &piece);
    }
    byte_tokens_[byte] = vocabulary_.Find(piece).value_or(-1);
    fallback_tokens_[byte] = vocabulary_.Find(FallbackPiece(byte)).value_or(-1);
  }
  if (options_.ignore_merges) IndexWholePieces();
  signs_only_in_front_ = !options_.is_byte_level && SeesSignsOnlyInFront();
}

void BpeModel::IndexWholePieces() {
  whole_pieces_.resize(vocabulary_.size());
  by_whole_piece_ = PieceIndex(vocabulary_.num_pieces());
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    if (!vocabulary_.Has(token)) continue;
    const std::string_view piece = vocabulary_.Piece(token);
    std::optional<std::string> whole =
        options_.is_byte_level ? FromByteAlphabet(piece) : std::string(piece);
    if (!whole) continue;
    whole_pieces_[token] = *std::move(whole);
    by_whole_piece_.Add(whole_pieces_[token], token);
  }
}

void BpeModel::MakeUnreachable(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (token < vocabulary_.size()) is_reachable_[token] = false;
  }
  merges_.Remove(is_reachable_);
}

bool BpeModel::SeesSignsOnlyInFront() const {
  // Otherwise the first part of a word depends on the text before it.
  if (options_.ignore_merges || !vocabulary_.Find(kSign)) return false;
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    std::string_view piece = vocabulary_.Piece(token);
    while (piece.starts_with(kSign)) piece.remove_prefix(kSign.size());
    if (piece.find(kSign) != std::string_view::npos) return false;
  }
  return true;
}

size_t BpeModel::FirstPartSize(std::string_view piece) const {
  if (!signs_only_in_front_) return piece.size();
  size_t begin = 0;
  while (piece.substr(begin).starts_with(kSign)) begin += kSign.size();
  return std::min(piece.find(kSign, begin), piece.size());
}

bool BpeModel::AppendByteTokens(std::string_view character,
                                std::vector<TokenId>* parts) const {
  for (const char byte : character) {
    if (fallback_tokens_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : character) {
    parts->push_back(fallback_tokens_[static_cast<uint8_t>(byte)]);
  }
  return true;
}

void BpeModel::AppendParts(std::string_view piece,
                           std::vector<TokenId>* parts) const {
  bool is_after_unk = false;
  while (!piece.empty()) {
    const size_t size =
        options_.is_byte_level ? 1 : CharacterSize(piece.front());
    const std::string_view character = piece.substr(0, size);
    piece.remove_prefix(size);
    const TokenId token =
        size == 1 ? byte_tokens_[static_cast<uint8_t>(character.front())]
                  : vocabulary_.Find(character).value_or(-1);
    if (token >= 0) {
      parts->push_back(token);
      is_after_unk = false;
    } else if (options_.byte_fallback && AppendByteTokens(character, parts)) {
      is_after_unk = false;
    } else if (options_.unk) {
      if (!is_after_unk || !options_.fuse_unk) parts->push_back(*options_.unk);
      is_after_unk = true;
    }
  }
}

absl::Status BpeModel::Encode(std::string_view piece, SubwordScratch* scratch,
                              std::vector<TokenId>* tokens) const {
  if (options_.ignore_merges) {
    const auto token = by_whole_piece_.Find(piece);
    if (token && is_reachable_[*token]) {
      tokens->push_back(*token);
      return absl::OkStatus();
    }
  }
  if (piece.size() <= kLongestScanned) {
    const size_t begin = tokens->size();
    AppendParts(piece, tokens);
    MergeByScan(tokens, begin);
    return absl::OkStatus();
  }
  scratch->parts.clear();
  AppendParts(piece, &scratch->parts);
  MergeByHeap(scratch, tokens);
  return absl::OkStatus();
}

void BpeModel::MergeByScan(std::vector<TokenId>* all, size_t begin) const {
  TokenId* const parts = all->data() + begin;
  size_t num_parts = all->size() - begin;
  if (num_parts < 2) return;
  // Merge of each part with the next one.
  std::array<const MergeTable::Entry*, kLongestScanned> merges;
  for (size_t i = 0; i + 1 < num_parts; ++i) {
    merges[i] = &merges_.Find(parts[i], parts[i + 1]);
  }
  while (num_parts > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < num_parts; ++i) {
      if (merges[i]->rank < merges[best]->rank) best = i;
    }
    if (merges[best]->rank == MergeTable::kNoRank) break;
    parts[best] = merges[best]->joined;
    --num_parts;
    for (size_t i = best + 1; i < num_parts; ++i) {
      parts[i] = parts[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best > 0) {
      merges[best - 1] = &merges_.Find(parts[best - 1], parts[best]);
    }
    if (best + 1 < num_parts) {
      merges[best] = &merges_.Find(parts[best], parts[best + 1]);
    }
  }
  all->resize(begin + num_parts);
}

void BpeModel::PushMerge(int32_t left, int32_t right,
                         SubwordScratch* scratch) const {
  if (left < 0 || right < 0) return;
  const uint32_t rank =
      merges_.Find(scratch->parts[left], scratch->parts[right]).rank;
  if (rank == MergeTable::kNoRank) return;
  scratch->heap.push_back(uint64_t{rank} << 32 | static_cast<uint32_t>(left));
  std::ranges::push_heap(scratch->heap, std::greater());
}

void BpeModel::MergeByHeap(SubwordScratch* scratch,
                           std::vector<TokenId>* tokens) const {
  constexpr TokenId kJoined = -1;  // to the part before it
  std::vector<TokenId>& parts = scratch->parts;
  const auto num_parts = static_cast<int32_t>(parts.size());
  CHECK_EQ(static_cast<size_t>(num_parts), parts.size());
  std::vector<int32_t>& previous = scratch->previous;
  std::vector<int32_t>& next = scratch->next;
  previous.resize(num_parts);
  next.resize(num_parts);
  scratch->heap.clear();
  for (int32_t i = 0; i < num_parts; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1 < num_parts ? i + 1 : -1;
    PushMerge(i, next[i], scratch);
  }
  while (!scratch->heap.empty()) {
    std::ranges::pop_heap(scratch->heap, std::greater());
    const uint64_t top = scratch->heap.back();
    scratch->heap.pop_back();
    const auto left = static_cast<int32_t>(top & UINT32_MAX);
    // Since it was pushed, one of the two may have become part of another.
    if (parts[left] == kJoined || next[left] < 0) continue;
    const int32_t right = next[left];
    const MergeTable::Entry& merge = merges_.Find(parts[left], parts[right]);
    if (merge.rank != top >> 32) continue;
    parts[left] = merge.joined;
    parts[right] = kJoined;
    next[left] = next[right];
    if (next[left] >= 0) previous[next[left]] = left;
    PushMerge(previous[left], left, scratch);
    PushMerge(left, next[left], scratch);
  }
  std::ranges::copy_if(parts, std::back_inserter(*tokens),
                       [](TokenId part) { return part != kJoined; });
}

}  // namespace espalier
