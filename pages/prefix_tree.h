// PrefixTree: prefix cache. Finds pages that already hold the keys and values
// of a token sequence. It is a trie whose edges are full pages of tokens (like
// SGLang's RadixAttention, Zheng et al. 2024, with pages in place of tokens):
//
//   root --[t0..t15] page 7 --+--[t16..t31] page 9
//                             +--[t16'..t31'] page 4
//
// The tree holds each of its pages, so a page outlives the sequence that filled
// it. Pages that only the tree holds are *idle*: they count as available, and
// the pool evicts the least recently used ones, leaves first, when no page is
// free (ReclaimPage).
//
//   PrefixMatch match = tree.Find(salt, {}, tokens);   // shares match.pages
//   ...
//   PrefixTree::Inserted page = tree.Insert(salt, match.end, page_tokens, page,
//                                           PageState::kFilling);
//   ...  // the result of the step that fills it has arrived
//   tree.MarkReady(page.cursor);
//
// A page is inserted while it is still being filled. Find() does not return
// such a page but reports it (PrefixMatch::is_filling), so that other sequences
// can wait for it instead of computing it again. Pages with different salts
// never match.
//
// Costs: Find and Insert visit one page after the other, with a binary search
// among siblings; about 20 ns per page if pages have one child. A page in the
// tree takes page_size * 4 + 80 bytes in addition to its keys and values.
//
// Thread safety: it belongs to its pool's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/small_vector.h"
#include "pages/page_pool.h"

namespace espalier {

// The tokens of a sequence in two parts, such as prompt and generated tokens.
struct TokenPath {
  std::span<const TokenId> head;
  std::span<const TokenId> rest = {};

  size_t size() const { return head.size() + rest.size(); }
};

enum class PageState {
  kFilling,  // the result of the step that fills it has not arrived
  kReady,
};

struct PrefixMatch;

class PrefixTree final : public PageReclaimer {
 public:
  // A node of the tree, after the pages on its path. Default: the root of any
  // salt. A cursor becomes stale when its page leaves the tree.
  struct Cursor {
    int node = -1;
    int64_t serial = 0;
  };
  struct Inserted {
    Cursor cursor;       // after the page
    bool is_new = true;  // false: the tree had the page's tokens already
  };

  // Registers as the pool's reclaimer.
  // REQUIRES: `pool` outlives the tree.
  explicit PrefixTree(PagePool* pool);
  ~PrefixTree() override;
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Returns the longest match of `tokens`, starting at `from`, in ready pages;
  // an empty match if `from` is stale. Matching pages become the most recently
  // used. If it throws std::bad_alloc, the tree is unchanged.
  PrefixMatch Find(std::string_view salt, Cursor from, const TokenPath& tokens);

  // Adds a full page after `parent`. If the tree has a page of these tokens, it
  // keeps that one, unless that is still being filled and `page` is ready.
  // Returns nullopt if `parent` is stale. If it throws std::bad_alloc, the tree
  // is unchanged.
  //   tokens  [page_size]
  std::optional<Inserted> Insert(std::string_view salt, Cursor parent,
                                 std::span<const TokenId> tokens,
                                 const PageRef& page, PageState state);

  // Returns the tokens of `num_pages` pages that all have the same edge, for
  // roots whose names say what their pages hold. Valid until the next call.
  // Throws std::bad_alloc.
  std::span<const TokenId> ChainTokens(int64_t num_pages);

  // Marks the page of `cursor` as filled; does nothing if it is stale.
  void MarkReady(Cursor cursor);
  // Removes the page of `cursor`, which will not be filled, and its subtree.
  // Does nothing if the page is ready or `cursor` is stale.
  void RemoveFilling(Cursor cursor);

  // Releases the least recently used idle page.
  bool ReclaimPage() override;
  // Releases all pages.
  void Clear();

  int num_pages() const { return num_pages_; }
  int64_t num_evicted() const { return num_evicted_; }
  // For the validator: all pages, and the ones being filled, ascending.
  std::vector<const PageRef*> Pages() const;
  std::vector<PageId> FillingPages() const;

 private:
  struct Node {
    // Members that Find reads come first; most nodes have one child.
    PageRef page;               // holds nothing for a root
    SmallVector<int> children;  // by the bytes of their tokens
    bool is_ready = false;
    int parent = -1;                    // -1: a root
    int64_t serial = 0;                 // unique per node; 0: unused entry
    int64_t last_use = 0;               // by clock_
    const std::string* salt = nullptr;  // roots only
  };
  // Nodes without children, by last_use: the order of eviction.
  using Leaves = std::set<std::pair<int64_t, int>>;

  // Returns the node of a cursor, or the root of `salt`; -1 if there is none.
  int NodeAt(std::string_view salt, Cursor cursor) const;
  int AddRoot(std::string_view salt);
  // Returns an unused entry. Also reserves the memory for GiveNodeBack().
  int NewNode(int parent);
  void GiveNodeBack(int node);
  const TokenId* TokensOf(int node) const;
  // Returns the index of the first child of `node` that is not less than the
  // first `count` of `tokens`.
  size_t LowerBound(const Node& node, const TokenId* tokens,
                    size_t count) const;
  int FindChild(const Node& node, const TokenId* tokens) const;
  // Returns page_size tokens from `first` on, in place or copied to buffer_.
  const TokenId* PageOf(const TokenPath& tokens, size_t first);
  // Sets the match's tail to the ready child of `node` with the longest common
  // prefix with the remaining tokens, unless too many children that are still
  // being filled are beside it.
  void MatchInsidePage(const Node& node, const TokenPath& tokens, size_t first,
                       PrefixMatch* match);
  // Makes `node` the most recently used.
  void Touch(int node);
  void AddChild(int parent, int child, const TokenId* tokens);
  // REQUIRES: `leaf` has no children and is no root.
  void RemoveLeaf(int leaf);
  void RemoveSubtree(int node);
  void RemoveRootIfEmpty(int root);

  PagePool* const pool_;
  const size_t page_size_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;                    // [nodes, page_size]
  std::vector<int> unused_;                        // entries of nodes_
  std::map<std::string, int, std::less<>> roots_;  // by salt
  Leaves leaves_;
  std::vector<TokenId> buffer_;  // [page_size]
  std::vector<TokenId> chain_;   // longest result of ChainTokens
  int64_t clock_ = 0;
  int64_t next_serial_ = 1;
  int num_pages_ = 0;
  int64_t num_evicted_ = 0;
};

struct PrefixMatch {
  std::vector<PageRef> pages;   // fully matched, in order
  PrefixTree::Cursor end = {};  // after `pages`
  // A page of which only the first num_tail_tokens tokens match.
  PageRef tail = {};
  int num_tail_tokens = 0;
  // Another sequence is filling a page that continues the match.
  bool is_filling = false;
};

}  // namespace espalier
