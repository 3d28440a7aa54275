// UnigramModel: the split of a piece whose tokens have the largest sum of
// scores, by Viterbi's algorithm over the bytes of the piece. A character that
// no token begins with costs ten more than the worst token.
//
// Among splits of equal sums, the one whose last token begins first wins, as in
// Hugging Face's tokenizers; sums are computed in double, from the left.
//
// Source: Kudo 2018, https://arxiv.org/abs/1804.10959.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/pipeline/subword_model.h"
#include "text/pipeline/vocabulary.h"

namespace espalier {

struct UnigramOptions {
  std::optional<TokenId> unk;
  // Unknown characters become their bytes' tokens, <0xE2>.
  // REQUIRES: the vocabulary has all of them.
  bool byte_fallback = false;
};

class UnigramModel : public SubwordModel {
 public:
  // At each character all pieces that may begin there are looked at, so the
  // longest bounds the time of a text. Trained ones have tens of bytes.
  static constexpr size_t kMaxPieceBytes = 256;

  // `scores` by token; none is NaN. Pieces that are reachable are of
  // kMaxPieceBytes at most. `vocabulary` must outlive this, and its ids
  // are [0, scores.size()).
  UnigramModel(const Vocabulary& vocabulary, std::vector<double> scores,
               const UnigramOptions& options);

  absl::Status Encode(std::string_view piece, SubwordScratch* scratch,
                      std::vector<TokenId>* tokens) const override;
  void MakeUnreachable(std::span<const TokenId> tokens) override;

 private:
  // A prefix of pieces. The children of a node follow each other, ascending.
  struct Node {
    uint32_t first_child = 0;
    uint16_t num_children = 0;
    uint8_t byte = 0;
    TokenId token = -1;  // that the prefix is
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  // The token that is `piece`, if it is reachable.
  std::optional<TokenId> Find(std::string_view piece) const;
  void MakeTrie();
  uint32_t Child(uint32_t node, char byte) const;
  absl::Status ExtendPaths(std::string_view piece, size_t begin,
                           SubwordScratch* scratch) const;
  void AppendUnknown(std::string_view text, std::vector<TokenId>* tokens) const;

  const Vocabulary& vocabulary_;
  const std::vector<double> scores_;
  const UnigramOptions options_;
  double unk_score_;
  std::vector<Node> nodes_;  // the root first
  std::array<TokenId, 256> byte_tokens_;
  std::vector<bool> is_reachable_;  // by token
};

}  // namespace espalier
