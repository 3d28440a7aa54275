#include "text/pipeline/unigram.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/byte_fallback.h"
#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

constexpr double kUnkPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary,
                           std::vector<double> scores,
                           const UnigramOptions& options)
    : vocabulary_(vocabulary),
      scores_(std::move(scores)),
      options_(options),
      is_reachable_(vocabulary.size(), true) {
  unk_score_ = std::numeric_limits<double>::infinity();
  for (const double score : scores_) unk_score_ = std::min(unk_score_, score);
  unk_score_ -= kUnkPenalty;
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary_.Find(FallbackPiece(byte)).value_or(-1);
  }
  MakeTrie();
}

std::optional<TokenId> UnigramModel::Find(std::string_view piece) const {
  const auto token = vocabulary_.Find(piece);
  const bool is_reachable = token && is_reachable_[*token];
  return is_reachable ? token : std::nullopt;
}

void UnigramModel::MakeUnreachable(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (token < vocabulary_.size()) is_reachable_[token] = false;
  }
  for (Node& node : nodes_) {
    if (node.token >= 0 && !is_reachable_[node.token]) node.token = -1;
  }
}

void UnigramModel::MakeTrie() {
  std::vector<std::string_view> pieces;
  for (TokenId token = 0; token < vocabulary_.size(); ++token) {
    const std::string_view piece = vocabulary_.Piece(token);
    if (!piece.empty() && Find(piece)) pieces.push_back(piece);
  }
  std::ranges::sort(pieces);
  pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
  // Level by level: the node of pieces[begin .. end), which share `depth`
  // bytes, gets its children when its turn comes.
  struct Range {
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Range> ranges = {{0, pieces.size(), 0}};
  nodes_ = {Node()};
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && pieces[begin].size() == depth) {
      // If two tokens have the same piece, the later one counts.
      nodes_[node].token = Find(pieces[begin]).value_or(-1);
      ++begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = pieces[begin][depth];
      size_t last = begin;
      while (last < end && pieces[last][depth] == byte) ++last;
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ++nodes_[node].num_children;
      ranges.push_back({begin, last, depth + 1});
      begin = last;
    }
  }
}

uint32_t UnigramModel::Child(uint32_t node, char byte) const {
  const Node* const begin = nodes_.data() + nodes_[node].first_child;
  const Node* const end = begin + nodes_[node].num_children;
  const auto wanted = static_cast<uint8_t>(byte);
  const Node* const child = std::lower_bound(
      begin, end, wanted, [](const Node& n, uint8_t b) { return n.byte < b; });
  if (child == end || child->byte != wanted) return kNone;
  return static_cast<uint32_t>(child - nodes_.data());
}

absl::Status UnigramModel::ExtendPaths(std::string_view piece, size_t begin,
                                       SubwordScratch* scratch) const {
  const double score_here = scratch->paths[begin].score;
  const size_t character_end = begin + CharacterSize(piece[begin]);
  const auto offer = [&](size_t end, double score, TokenId token) {
    SubwordScratch::PathNode& node = scratch->paths[end];
    if (node.begin >= 0 && score <= node.score) return;
    node = {score, static_cast<int32_t>(begin), token};
  };
  bool has_character = false;
  uint32_t node = 0;
  for (size_t end = begin; end < piece.size();) {
    node = Child(node, piece[end]);
    if (node == kNone) break;
    ++end;
    const TokenId token = nodes_[node].token;
    if (token < 0) continue;
    offer(end, scores_[token] + score_here, token);
    has_character |= end == character_end;
  }
  if (has_character) return absl::OkStatus();
  if (!options_.unk) {
    return InvalidArgument(
        "no token spells ",
        ShownInQuotes(piece.substr(begin, character_end - begin)),
        ", and there is no unknown token (model.unk_id)");
  }
  offer(character_end, unk_score_ + score_here, *options_.unk);
  return absl::OkStatus();
}

absl::Status UnigramModel::Encode(std::string_view piece,
                                  SubwordScratch* scratch,
                                  std::vector<TokenId>* tokens) const {
  std::vector<SubwordScratch::PathNode>& paths = scratch->paths;
  paths.assign(piece.size() + 1, {0, -1, -1});
  for (size_t begin = 0; begin < piece.size();
       begin += CharacterSize(piece[begin])) {
    RETURN_IF_ERROR(ExtendPaths(piece, begin, scratch));
  }
  // The best path, from its end.
  std::vector<int32_t>& begins = scratch->previous;
  begins.clear();
  for (auto end = static_cast<int32_t>(piece.size()); end > 0;) {
    end = paths[end].begin;
    begins.push_back(end);
  }
  size_t unk_begin = 0, unk_end = 0;  // range of adjacent unknown characters
  for (size_t i = begins.size(); i-- > 0;) {
    const size_t end = i > 0 ? begins[i - 1] : piece.size();
    const TokenId token = paths[end].token;
    if (token == options_.unk) {
      if (unk_begin == unk_end) unk_begin = begins[i];
      unk_end = end;
      if (i > 0) continue;
    }
    if (unk_begin < unk_end) {
      AppendUnknown(piece.substr(unk_begin, unk_end - unk_begin), tokens);
      unk_begin = unk_end = 0;
    }
    if (token != options_.unk) tokens->push_back(token);
  }
  return absl::OkStatus();
}

void UnigramModel::AppendUnknown(std::string_view text,
                                 std::vector<TokenId>* tokens) const {
  if (const auto token = Find(text)) {
    tokens->push_back(*token);
  } else if (options_.byte_fallback) {
    for (const char byte : text) {
      tokens->push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    }
  } else {
    tokens->push_back(*options_.unk);
  }
}

}  // namespace espalier
