// BpeModel: byte-pair encoding. A piece's characters (or its bytes) are tokens
// at first; then the two neighbours that an earlier merge joins become one, the
// leftmost first, until no merge joins any two.
//
// A short piece is scanned for its best merge again and again; a longer one
// keeps its merges in a heap, so that n characters take n log n steps.
//
// Source: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash.h"
#include "base/ids.h"
#include "text/pipeline/subword_model.h"
#include "text/pipeline/vocabulary.h"

namespace espalier {

struct BpeOptions {
  // Pieces are bytes, and the vocabulary spells them by
  // text/pipeline/byte_level.h.
  bool is_byte_level = false;
  // A character that is no token becomes its bytes' tokens, <0xE2>.
  bool byte_fallback = false;
  // A piece that is a token is that token, whatever the merges make of it.
  bool ignore_merges = false;
  // Token for unknown characters; without it they are dropped.
  std::optional<TokenId> unk;
  // Unknown neighbours are one.
  bool fuse_unk = false;
};

class BpeModel : public SubwordModel {
 public:
  // A merge of two tokens; the order of merges is their rank.
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId joined;
  };

  // `merges` in the order of their ranks; of two that join the same, the later
  // counts. `vocabulary` must outlive this.
  BpeModel(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
           const BpeOptions& options);

  absl::Status Encode(std::string_view piece, SubwordScratch* scratch,
                      std::vector<TokenId>* tokens) const override;
  // Words that begin with "▁", where no token has that sign after another
  // character.
  size_t FirstPartSize(std::string_view piece) const override;
  void MakeUnreachable(std::span<const TokenId> tokens) override;

 private:
  // From a pair of tokens to its merge.
  class MergeTable {
   public:
    struct Entry {
      uint64_t pair = kNoPair;
      uint32_t rank = kNoRank;
      TokenId joined = -1;
    };
    static constexpr uint32_t kNoRank = UINT32_MAX;

    explicit MergeTable(const std::vector<Merge>& merges);
    // Removes merges whose joined token is unreachable.
    void Remove(const std::vector<bool>& is_reachable);
    // One of kNoRank if there is none.
    const Entry& Find(TokenId left, TokenId right) const {
      const uint64_t pair = PairOf(left, right);
      size_t slot = SlotOf(pair);
      while (entries_[slot].pair != pair && entries_[slot].pair != kNoPair) {
        slot = (slot + 1) & mask_;
      }
      return entries_[slot];
    }

   private:
    static constexpr uint64_t kNoPair = UINT64_MAX;
    static uint64_t PairOf(TokenId left, TokenId right) {
      return uint64_t{static_cast<uint32_t>(left)} << 32 |
             static_cast<uint32_t>(right);
    }
    size_t SlotOf(uint64_t pair) const { return HashOf(pair) >> shift_; }
    std::vector<Entry> entries_;  // a power of two, half of them empty
    size_t mask_;
    int shift_;
  };

  void IndexWholePieces();
  bool SeesSignsOnlyInFront() const;
  void AppendParts(std::string_view piece, std::vector<TokenId>* parts) const;
  bool AppendByteTokens(std::string_view character,
                        std::vector<TokenId>* parts) const;
  void MergeByScan(std::vector<TokenId>* parts, size_t begin) const;
  void MergeByHeap(SubwordScratch* scratch, std::vector<TokenId>* tokens) const;
  void PushMerge(int32_t left, int32_t right, SubwordScratch* scratch) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  const BpeOptions options_;
  // Token of a byte, or of an ASCII character; -1 if there is none.
  std::array<TokenId, 256> byte_tokens_;
  // Tokens of <0x00> and following; -1 if there is none.
  std::array<TokenId, 256> fallback_tokens_;
  // With ignore_merges: the pieces of tokens as Encode gets them, and their
  // ids.
  std::vector<std::string> whole_pieces_;
  PieceIndex by_whole_piece_;
  std::vector<bool> is_reachable_;  // by token
  bool signs_only_in_front_ = false;
};

}  // namespace espalier
