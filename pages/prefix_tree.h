// PrefixTree: which pages already hold the keys and values of a token sequence.
// A trie whose edges are full pages of tokens (a radix tree with nodes of one
// page; SGLang's RadixAttention, Zheng et al. 2024, with pages for tokens):
//
//   root --[t0..t15] page 7 --+--[t16..t31] page 9
//                             +--[t16'..t31'] page 4
//
// The tree is one more holder of each of its pages, so a page outlives the
// sequence that filled it. Pages that the tree alone holds are *idle*: they
// count as available, and the pool takes the least recently used ones back
// when nothing else is free (ReclaimPage), leaves first.
//
//   PrefixMatch match = tree.Find(salt, {}, tokens);   // shares match.pages
//   ...
//   PrefixTree::Inserted page = tree.Insert(salt, match.end, page_tokens, page,
//                                           PageState::kFilling);
//   ...  // the step that fills it is answered
//   tree.MarkReady(page.cursor);
//
// A page is announced while it is filled: it is not given to other sequences
// yet, but Find reports it (PrefixMatch::is_filling), so they can wait instead
// of computing the same. Pages of different salts never match.
//
// Costs: Find and Insert walk one page after the other, a binary search among
// its siblings each; about 20 ns a page where pages have one child. A page in
// the tree takes page_size * 4 + 80 bytes beside its keys and values.
//
// Belongs to its pool's strand.
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

// The tokens of a sequence in two parts, such as its prompt and what was
// generated.
struct TokenPath {
  std::span<const TokenId> head;
  std::span<const TokenId> rest = {};

  size_t size() const { return head.size() + rest.size(); }
};

enum class PageState {
  kFilling,  // by a step that is not answered
  kReady,
};

struct PrefixMatch;

class PrefixTree final : public PageReclaimer {
 public:
  // A place in the tree: after the pages on the way to it. Default: after
  // none, the root of any salt. It goes stale when its page leaves the tree.
  struct Cursor {
    int node = -1;
    int64_t serial = 0;
  };
  struct Inserted {
    Cursor cursor;       // after the page
    bool is_new = true;  // false: the tree had the page's tokens already
  };

  // Is the pool's reclaimer as long as it lives. `pool` outlives it.
  explicit PrefixTree(PagePool* pool);
  ~PrefixTree() override;
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest match of `tokens`, which follow `from`, in pages that are
  // ready; nothing if `from` is stale. What matches becomes the most recently
  // used. Throws std::bad_alloc, and the tree is as it was.
  PrefixMatch Find(std::string_view salt, Cursor from, const TokenPath& tokens);

  // Adds a full page after `parent`. Where the tree has one of the same tokens
  // it keeps that, unless that is still being filled and `page` is ready.
  // Nothing if `parent` is stale. Throws std::bad_alloc, and the tree is as it
  // was.
  //   tokens  [page_size]
  std::optional<Inserted> Insert(std::string_view salt, Cursor parent,
                                 std::span<const TokenId> tokens,
                                 const PageRef& page, PageState state);

  // The page before `cursor` is filled. Nothing if that is stale.
  void MarkReady(Cursor cursor);
  // The page before `cursor` will not be filled: it leaves the tree with all
  // that follows it. Nothing if it is ready, or `cursor` stale.
  void RemoveFilling(Cursor cursor);

  // Releases the least recently used page that it alone holds.
  bool ReclaimPage() override;
  // Releases all pages.
  void Clear();

  int num_pages() const { return num_pages_; }
  int64_t num_evicted() const { return num_evicted_; }
  // For the validator: all, and those being filled, ascending.
  std::vector<const PageRef*> Pages() const;
  std::vector<PageId> FillingPages() const;

 private:
  struct Node {
    // What Find reads comes first; most have one child.
    PageRef page;               // none of a root
    SmallVector<int> children;  // by the bytes of their tokens
    bool is_ready = false;
    int parent = -1;                    // of a root: -1
    int64_t serial = 0;                 // of this use of the entry; 0: unused
    int64_t last_use = 0;               // by clock_
    const std::string* salt = nullptr;  // of a root
  };
  // Nodes without children, in the order in which they leave.
  using Leaves = std::set<std::pair<int64_t, int>>;

  // The node of a cursor, or of the root of `salt`; -1 if there is none.
  int NodeAt(std::string_view salt, Cursor cursor) const;
  int AddRoot(std::string_view salt);
  // An unused entry, made so that giving it back needs no memory.
  int NewNode(int parent);
  void GiveNodeBack(int node);
  const TokenId* TokensOf(int node) const;
  // Index in the children of `node` of the first that is not before the first
  // `count` of `tokens`.
  size_t LowerBound(const Node& node, const TokenId* tokens,
                    size_t count) const;
  int FindChild(const Node& node, const TokenId* tokens) const;
  // page_size tokens from `first`, where they lie or in `buffer_`.
  const TokenId* PageOf(const TokenPath& tokens, size_t first);
  // The child of `node` that shares most of the first tokens that are left: one
  // that is ready, if few that are not stand beside it.
  void MatchInsidePage(const Node& node, const TokenPath& tokens, size_t first,
                       PrefixMatch* match);
  // `node` becomes the most recently used.
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
  int64_t clock_ = 0;
  int64_t next_serial_ = 1;
  int num_pages_ = 0;
  int64_t num_evicted_ = 0;
};

struct PrefixMatch {
  std::vector<PageRef> pages;   // full ones, in order
  PrefixTree::Cursor end = {};  // after these
  // A page whose first tokens come next, though not all of them.
  PageRef tail = {};
  int num_tail_tokens = 0;
  // What follows `pages` is being filled by another sequence.
  bool is_filling = false;
};

}  // namespace espalier
