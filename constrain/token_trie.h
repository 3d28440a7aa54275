// TokenTrie: the tokens of a vocabulary by the bytes that they add to a text,
// as tries in depth-first order. A walk along an automaton finds the legal
// tokens of a state, and skips all tokens with a beginning that is illegal.
//
// Tokens of plain characters (constrain/plain_text_loops.h), most of those of
// usual vocabularies, have a trie of their own. Where the state after a token
// of a subtree depends on its length alone, the walk takes the tokens of each
// length together; at the root, as one bitmap.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/constraint_tables.h"
#include "base/ids.h"
#include "constrain/plain_text_loops.h"
#include "constrain/token_mask.h"

namespace espalier {

class TokenTrie {
 public:
  // `bytes[t]` is what token t adds to a text. A token that adds nothing, such
  // as EOS, is never legal. One of more than 65,535 bytes counts as such.
  explicit TokenTrie(std::span<const std::string> bytes);

  int vocab_size() const { return static_cast<int>(indptr_.size()) - 1; }
  // REQUIRES: `token` is in [0, vocab_size()).
  std::string_view BytesOf(TokenId token) const {
    return std::string_view(text_).substr(indptr_[token],
                                          indptr_[token + 1] - indptr_[token]);
  }
  // Returns what BytesOf returns for all tokens. Valid as long as the trie.
  TokenTexts texts() const {
    return {indptr_.data(), reinterpret_cast<const uint8_t*>(text_.data())};
  }
  // True if each byte is a token.
  bool has_all_bytes() const { return has_all_bytes_; }
  // Bytes of the texts and of the tries.
  int64_t num_bytes() const;

  // Adds to `*mask` the tokens whose bytes lead from `state` to a state after
  // which a text can be completed.
  //   next   next(state, byte) returns the state after a byte; negative: there
  //          is none
  //   probe  as `next`, for bytes that perhaps no token has; -1: there is none;
  //          another negative number: it is not known
  //   end    end(state, count) returns true if tokens that lead to `state` are
  //          legal, which it is asked at least once; there are `count` more
  template <typename Next, typename Probe, typename End>
  void AddLegal(const Next& next, const Probe& probe, int32_t state,
                const End& end, TokenMask* mask) const {
    PlainTextLoops<Probe> loops(probe);
    Walk<Next, Probe, End> walk = {
        .next = next, .end = end, .loops = loops, .mask = mask};
    // States before each byte of a node's path.
    walk.path.resize(max_depth_ + 1);
    walk.path[0] = state;
    VisitPlain(&walk);
    for (const Root& root : RootsAfter(other_, &walk)) {
      VisitSubtree(other_, root.node_idx, &walk);
    }
  }

 private:
  struct Node {
    uint32_t first_token;  // first of its own tokens in Tree::tokens
    uint32_t subtree_end;  // index of the first node outside of its subtree
    uint16_t depth;        // bytes before this one
    uint8_t byte;
    uint8_t num_chars;  // plain: characters that have begun, with this byte
  };
  // The characters of a plain node's subtree, after its own.
  struct Below {
    uint64_t groups = 0;
    int max_chars = 0;
  };
  // Groups after a byte within a character.
  static constexpr uint64_t kWithinChar = ~uint64_t{0};
  // Smaller subtrees, and plain tokens as a whole, are walked.
  static constexpr uint32_t kMinSubtree = 16;
  static constexpr size_t kMinPlain = 1024;
  // First bytes that may follow where all plain tokens may.
  static constexpr size_t kMinWide = 32;

  // A node of depth 0, and the state after it in a walk.
  struct Root {
    uint32_t node_idx = 0;
    uint8_t byte = 0;
    int32_t next = 0;
  };

  struct Tree {
    std::vector<TokenId> tokens;  // sorted by their bytes, then by id
    // Depth first, smaller bytes first; then one that ends the tokens.
    std::vector<Node> nodes;
    // Apart from the nodes, which are far from each other in memory: in most
    // states few roots may follow.
    std::vector<Root> roots;

    size_t num_nodes() const { return nodes.size() - 1; }
    uint32_t NumTokensIn(const Node& node) const {
      return nodes[node.subtree_end].first_token - node.first_token;
    }
  };

  template <typename Next, typename Probe, typename End>
  struct Walk {
    const Next& next;
    const End& end;
    PlainTextLoops<Probe>& loops;
    TokenMask* mask;
    std::vector<int32_t> path = {};
  };

  void AddTree(std::vector<TokenId> tokens, Tree* tree);
  void FindCharacters();

  // Returns the roots that may follow.
  std::vector<Root> RootsAfter(const Tree& tree, auto* walk) const {
    std::vector<Root> roots;
    for (Root root : tree.roots) {
      root.next = walk->next(walk->path[0], root.byte);
      if (root.next >= 0) roots.push_back(root);
    }
    return roots;
  }

  // Visits a node and those below it.
  void VisitSubtree(const Tree& tree, size_t root, auto* walk) const {
    const bool is_plain = &tree == &plain_ && has_loops();
    for (size_t i = root, end = tree.nodes[root].subtree_end; i < end;) {
      const Node& node = tree.nodes[i];
      const int32_t next = walk->next(walk->path[node.depth], node.byte);
      if (next < 0 || (is_plain && TakeSubtree(i, next, walk))) {
        i = node.subtree_end;
        continue;
      }
      walk->path[node.depth + 1] = next;
      ++i;
      const uint32_t tokens_end = tree.nodes[i].first_token;
      if (tokens_end == node.first_token) continue;
      if (!walk->end(next, tokens_end - node.first_token)) continue;
      for (uint32_t t = node.first_token; t < tokens_end; ++t) {
        walk->mask->Add(tree.tokens[t]);
      }
    }
  }

  bool has_loops() const { return plain_.tokens.size() >= kMinPlain; }

  // Returns the states after the tokens of a subtree, by their characters after
  // its node; null if they are not known.
  //   state  after the node's own byte
  auto ChainOf(size_t node_idx, int32_t state, auto* walk) const {
    const Below& below = below_[node_idx];
    return below.groups == kWithinChar
               ? nullptr
               : walk->loops.Find(state, below.groups, below.max_chars);
  }

  // Returns true if the states after the tokens of a subtree are known; then
  // adds those that are legal.
  bool TakeSubtree(size_t node_idx, int32_t state, auto* walk) const {
    const Node& node = plain_.nodes[node_idx];
    const uint32_t count = plain_.NumTokensIn(node);
    if (count < kMinSubtree) return false;
    const auto* const chain = ChainOf(node_idx, state, walk);
    if (chain == nullptr) return false;
    const uint32_t legal = LegalLengths(*chain, node, walk);
    for (uint32_t t = node.first_token; t < node.first_token + count; ++t) {
      if ((legal >> (num_chars_[t] - node.num_chars) & 1) != 0) {
        walk->mask->Add(plain_.tokens[t]);
      }
    }
    return true;
  }

  // Returns the numbers of characters after `node`, each a bit, with which
  // tokens are legal.
  uint32_t LegalLengths(const auto& chain, const Node& node, auto* walk) const {
    const uint32_t num_tokens = plain_.NumTokensIn(node);
    if (chain.is_loop()) {
      return walk->end(chain.states[0], num_tokens) ? ~uint32_t{0} : 0;
    }
    std::array<uint32_t, PlainText::kMaxChars + 1> counts = {};
    for (uint32_t t = 0; t < num_tokens; ++t) {
      ++counts[num_chars_[node.first_token + t] - node.num_chars];
    }
    uint32_t legal = 0;
    for (int chars = 0; chars <= PlainText::kMaxChars; ++chars) {
      const int32_t next = chain.StateAfter(chars);
      if (counts[chars] > 0 && next >= 0 && walk->end(next, counts[chars])) {
        legal |= uint32_t{1} << chars;
      }
    }
    return legal;
  }

  // Visits the trie of plain tokens.
  void VisitPlain(auto* walk) const {
    const std::vector<Root> roots = RootsAfter(plain_, walk);
    if (has_loops() && roots.size() >= kMinWide && TakeAllPlain(walk)) return;
    // If a bitmap has most tokens, others are taken out of it.
    std::vector<size_t> taken;
    size_t num_taken = 0;
    for (const Root& root : roots) {
      const uint32_t count = plain_.NumTokensIn(plain_.nodes[root.node_idx]);
      const auto* const chain = !has_loops() || count < kMinSubtree
                                    ? nullptr
                                    : ChainOf(root.node_idx, root.next, walk);
      if (chain == nullptr || !chain->is_loop()) {
        VisitSubtree(plain_, root.node_idx, walk);
      } else if (walk->end(root.next, count)) {
        taken.push_back(root.node_idx);
        num_taken += count;
      }
    }
    AddSubtrees(taken, num_taken, walk->mask);
  }

  // Returns true if the state after each plain token depends on its length
  // alone; then adds those that are legal.
  bool TakeAllPlain(auto* walk) const {
    const auto* const chain = ChainOf(plain_.num_nodes(), walk->path[0], walk);
    if (chain == nullptr) return false;
    bool all = true;
    std::vector<int> legal;  // lengths
    for (int chars = 1; chars <= PlainText::kMaxChars; ++chars) {
      const uint32_t count = num_of_length_[chars];
      if (count == 0) continue;
      const int32_t next = chain->StateAfter(chars);
      if (next >= 0 && walk->end(next, count)) {
        legal.push_back(chars);
      } else {
        all = false;
      }
    }
    if (all) {
      walk->mask->AddWords(plain_words_);
      return true;
    }
    for (const int chars : legal) {
      walk->mask->AddWords(words_of_length_[chars]);
    }
    return true;
  }

  // Adds all tokens of these plain roots, `num_tokens`.
  void AddSubtrees(std::span<const size_t> roots, size_t num_tokens,
                   TokenMask* mask) const;

  std::string text_;             // the bytes of one token after the other
  std::vector<int32_t> indptr_;  // [vocab_size + 1]
  Tree plain_;
  Tree other_;
  std::vector<uint64_t> plain_words_;  // bits of the plain tokens
  std::vector<uint8_t> num_chars_;     // [plain tokens]  characters
  std::vector<Below> below_;  // [plain nodes + 1]  the last: all plain tokens
  // Plain tokens by their characters.
  std::array<uint32_t, PlainText::kMaxChars + 1> num_of_length_ = {};
  std::array<std::vector<uint64_t>, PlainText::kMaxChars + 1> words_of_length_;
  size_t max_depth_ = 0;
  bool has_all_bytes_ = false;
};

}  // namespace espalier
