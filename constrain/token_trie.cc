#include "constrain/token_trie.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <utility>

#include "base/json.h"

namespace espalier {
namespace {

// A byte that begins a character of UTF-8.
bool BeginsChar(uint8_t byte) { return (byte & 0xC0) != 0x80; }

int NumChars(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char c) { return BeginsChar(static_cast<uint8_t>(c)); }));
}

bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text,
                             [](char c) {
                               const auto byte = static_cast<uint8_t>(c);
                               return byte >= 0x80 ||
                                      PlainText::IsPlainAscii(byte);
                             }) &&
         IsUtf8(text) && NumChars(text) <= PlainText::kMaxChars;
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::string> bytes) {
  // A node's depth has 16 bits; no text has a token as long.
  constexpr size_t kMaxBytes = std::numeric_limits<uint16_t>::max();
  indptr_.reserve(bytes.size() + 1);
  indptr_.push_back(0);
  for (const std::string& of_token : bytes) {
    if (of_token.size() <= kMaxBytes) text_ += of_token;
    indptr_.push_back(static_cast<int32_t>(text_.size()));
  }
  text_.shrink_to_fit();
  std::vector<TokenId> plain;
  std::vector<TokenId> other;
  std::bitset<256> single;
  for (TokenId token = 0; token < vocab_size(); ++token) {
    const std::string_view text = BytesOf(token);
    if (text.empty()) continue;
    if (text.size() == 1) single.set(static_cast<uint8_t>(text[0]));
    (IsPlain(text) ? plain : other).push_back(token);
  }
  has_all_bytes_ = single.all();
  AddTree(std::move(plain), &plain_);
  AddTree(std::move(other), &other_);
  FindCharacters();
}

void TokenTrie::AddTree(std::vector<TokenId> tokens, Tree* tree) {
  std::stable_sort(tokens.begin(), tokens.end(), [&](TokenId a, TokenId b) {
    return BytesOf(a) < BytesOf(b);
  });
  std::vector<Node>& nodes = tree->nodes;
  std::vector<uint32_t> path;  // nodes of the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes[path.back()].subtree_end = static_cast<uint32_t>(nodes.size());
    }
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = BytesOf(tokens[i]);
    const size_t num_common =
        std::mismatch(text.begin(), text.end(), last.begin(), last.end())
            .first -
        text.begin();
    close(num_common);
    for (size_t depth = num_common; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes.size()));
      // Tokens that end before it come first, this one after its last byte.
      nodes.push_back({.first_token = static_cast<uint32_t>(i),
                       .subtree_end = 0,
                       .depth = static_cast<uint16_t>(depth),
                       .byte = static_cast<uint8_t>(text[depth]),
                       .num_chars = 0});
    }
    max_depth_ = std::max(max_depth_, text.size());
    last = text;
  }
  close(0);
  nodes.push_back({.first_token = static_cast<uint32_t>(tokens.size()),
                   .subtree_end = static_cast<uint32_t>(nodes.size()),
                   .depth = 0,
                   .byte = 0,
                   .num_chars = 0});
  nodes.shrink_to_fit();
  for (size_t i = 0; i < tree->num_nodes(); i = nodes[i].subtree_end) {
    tree->roots.push_back(
        {.node_idx = static_cast<uint32_t>(i), .byte = nodes[i].byte});
  }
  tree->tokens = std::move(tokens);
}

void TokenTrie::FindCharacters() {
  plain_words_.resize(TokenMask::NumWords(vocab_size()));
  for (const TokenId token : plain_.tokens) {
    TokenMask::SetBit(token, plain_words_);
    const int count = NumChars(BytesOf(token));
    num_chars_.push_back(static_cast<uint8_t>(count));
    ++num_of_length_[count];
    std::vector<uint64_t>& words = words_of_length_[count];
    words.resize(plain_words_.size());
    TokenMask::SetBit(token, words);
  }
  const size_t num_nodes = plain_.num_nodes();
  std::vector<size_t> parents(num_nodes);
  std::vector<size_t> path;
  for (size_t i = 0; i < num_nodes; ++i) {
    Node& node = plain_.nodes[i];
    path.resize(node.depth);
    const int chars_before =
        path.empty() ? 0 : plain_.nodes[path.back()].num_chars;
    node.num_chars =
        static_cast<uint8_t>(chars_before + (BeginsChar(node.byte) ? 1 : 0));
    parents[i] = path.empty() ? num_nodes : path.back();
    path.push_back(i);
  }
  // With all characters of the path at first; the last is that of the root.
  below_.resize(num_nodes + 1);
  std::vector<bool> is_within_char(num_nodes + 1);
  for (size_t i = num_nodes; i-- > 0;) {
    const Node& node = plain_.nodes[i];
    Below& below = below_[i];
    below.max_chars = std::max<int>(below.max_chars, node.num_chars);
    Below& above = below_[parents[i]];
    above.max_chars = std::max(above.max_chars, below.max_chars);
    above.groups |= below.groups;
    if (BeginsChar(node.byte)) {
      above.groups |= PlainText::BitOf(node.byte);
    } else {
      is_within_char[parents[i]] = true;
    }
  }
  for (size_t i = 0; i < num_nodes; ++i) {
    below_[i].max_chars -= plain_.nodes[i].num_chars;
    if (is_within_char[i]) below_[i].groups = kWithinChar;
  }
}

void TokenTrie::AddSubtrees(std::span<const size_t> roots, size_t num_tokens,
                            TokenMask* mask) const {
  const auto tokens_of = [&](size_t node_idx) {
    const Node& node = plain_.nodes[node_idx];
    return std::span(plain_.tokens)
        .subspan(node.first_token, plain_.NumTokensIn(node));
  };
  if (num_tokens <= plain_.tokens.size() / 2) {
    for (const size_t root : roots) {
      for (const TokenId token : tokens_of(root)) mask->Add(token);
    }
    return;
  }
  std::vector<uint64_t> words = plain_words_;
  auto taken = roots.begin();
  for (const Root& root : plain_.roots) {
    if (taken != roots.end() && *taken == root.node_idx) {
      ++taken;
      continue;
    }
    for (const TokenId token : tokens_of(root.node_idx)) {
      TokenMask::ClearBit(token, words);
    }
  }
  mask->AddWords(words);
}

int64_t TokenTrie::num_bytes() const {
  const auto bytes_of = [](const Tree& tree) {
    return tree.tokens.size() * sizeof(TokenId) +
           tree.nodes.size() * sizeof(Node) +
           tree.roots.capacity() * sizeof(Root);
  };
  size_t num_words = plain_words_.size();
  for (const auto& words : words_of_length_) num_words += words.size();
  return static_cast<int64_t>(
      text_.capacity() + indptr_.size() * sizeof(int32_t) + bytes_of(plain_) +
      bytes_of(other_) + num_words * sizeof(uint64_t) + num_chars_.size() +
      below_.size() * sizeof(Below));
}

}  // namespace espalier
