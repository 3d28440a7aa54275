#include "pages/prefix_tree.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace espalier {
namespace {

// Any lexicographic order works; this one is fast.
int Compare(const TokenId* a, const TokenId* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(TokenId));
}

size_t CommonPrefix(const TokenId* a, const TokenId* b, size_t count) {
  return std::mismatch(a, a + count, b).first - a;
}

}  // namespace

PrefixTree::PrefixTree(PagePool* pool)
    : pool_(pool), page_size_(pool->page_size()), buffer_(page_size_) {
  pool_->set_reclaimer(this);
}

PrefixTree::~PrefixTree() {
  Clear();
  pool_->set_reclaimer(nullptr);
}

int PrefixTree::NodeAt(std::string_view salt, Cursor cursor) const {
  if (cursor.node < 0) {
    const auto root = roots_.find(salt);
    return root == roots_.end() ? -1 : root->second;
  }
  return nodes_[cursor.node].serial == cursor.serial ? cursor.node : -1;
}

const TokenId* PrefixTree::TokensOf(int node) const {
  return tokens_.data() + node * page_size_;
}

const TokenId* PrefixTree::PageOf(const TokenPath& tokens, size_t first) {
  const size_t num_head = tokens.head.size();
  if (first + page_size_ <= num_head) return tokens.head.data() + first;
  if (first >= num_head) return tokens.rest.data() + (first - num_head);
  const auto middle = std::copy(tokens.head.begin() + first, tokens.head.end(),
                                buffer_.begin());
  std::copy_n(tokens.rest.begin(), buffer_.end() - middle, middle);
  return buffer_.data();
}

size_t PrefixTree::LowerBound(const Node& node, const TokenId* tokens,
                              size_t count) const {
  const auto found = std::partition_point(
      node.children.begin(), node.children.end(),
      [&](int child) { return Compare(TokensOf(child), tokens, count) < 0; });
  return found - node.children.begin();
}

int PrefixTree::FindChild(const Node& node, const TokenId* tokens) const {
  // An only child is looked at once.
  const size_t at =
      node.children.size() == 1 ? 0 : LowerBound(node, tokens, page_size_);
  if (at == node.children.size()) return -1;
  const int child = node.children[at];
  return Compare(TokensOf(child), tokens, page_size_) == 0 ? child : -1;
}

PrefixMatch PrefixTree::Find(std::string_view salt, Cursor from,
                             const TokenPath& tokens) {
  PrefixMatch match;
  match.end = from;
  int node = NodeAt(salt, from);
  if (node < 0) return match;
  size_t first = 0;
  int next = -1;
  while (first + page_size_ <= tokens.size()) {
    next = FindChild(nodes_[node], PageOf(tokens, first));
    if (next < 0 || !nodes_[next].is_ready) break;
    if (first == 0) match.pages.reserve(tokens.size() / page_size_);
    match.pages.push_back(nodes_[next].page);
    node = next;
    next = -1;
    first += page_size_;
  }
  if (next >= 0) {
    match.is_filling = true;
  } else {
    MatchInsidePage(nodes_[node], tokens, first, &match);
  }
  if (!match.pages.empty()) match.end = {node, nodes_[node].serial};
  Touch(node);
  return match;
}

void PrefixTree::MatchInsidePage(const Node& node, const TokenPath& tokens,
                                 size_t first, PrefixMatch* match) {
  const size_t count = std::min(page_size_ - 1, tokens.size() - first);
  if (count == 0 || node.children.empty()) return;
  TokenId* next = buffer_.data();
  for (size_t i = 0; i < count; ++i) {
    const size_t at = first + i;
    const size_t num_head = tokens.head.size();
    next[i] = at < num_head ? tokens.head[at] : tokens.rest[at - num_head];
  }
  bool is_filling = false;
  // Returns true if a later sibling may be ready with as long a prefix.
  const auto look_at = [&](int child) {
    const size_t common = CommonPrefix(TokensOf(child), next, count);
    if (static_cast<int>(common) <= match->num_tail_tokens) return false;
    if (!nodes_[child].is_ready) {
      // The tree will then have pages for all of the tokens.
      is_filling |= common == count && first + count == tokens.size();
      return true;
    }
    match->num_tail_tokens = static_cast<int>(common);
    match->tail = nodes_[child].page;
    return false;
  };
  // The child with the longest common prefix is next to the insertion point.
  // On each side at most kMaxLooks children that are being filled are skipped.
  constexpr size_t kMaxLooks = 8;
  const size_t at = LowerBound(node, next, count);
  const size_t begin = at - std::min(at, kMaxLooks);
  const size_t end = std::min(at + kMaxLooks, node.children.size());
  for (size_t i = at; i > begin && look_at(node.children[i - 1]);) --i;
  for (size_t i = at; i < end && look_at(node.children[i]);) ++i;
  match->is_filling =
      is_filling && match->num_tail_tokens < static_cast<int>(count);
}

std::optional<PrefixTree::Inserted> PrefixTree::Insert(
    std::string_view salt, Cursor parent, std::span<const TokenId> tokens,
    const PageRef& page, PageState state) {
  CHECK_EQ(tokens.size(), page_size_) << "tokens of a full page";
  int at = NodeAt(salt, parent);
  if (at < 0 && parent.node >= 0) return std::nullopt;
  const int existing = at < 0 ? -1 : FindChild(nodes_[at], tokens.data());
  const bool is_ready = state == PageState::kReady;
  if (existing >= 0) {
    Node& node = nodes_[existing];
    if (!node.is_ready && is_ready) {
      if (node.page.id() != page.id()) {
        pool_->SetCached(node.page.id(), false);
        node.page = page;
        pool_->SetCached(node.page.id(), true);
      }
      node.is_ready = true;
    }
    Touch(existing);
    return Inserted{{existing, node.serial}, false};
  }
  const bool is_new_root = at < 0;
  if (is_new_root) at = AddRoot(salt);
  int child = -1;
  try {
    child = NewNode(at);
    AddChild(at, child, tokens.data());
  } catch (...) {
    if (child >= 0) GiveNodeBack(child);
    if (is_new_root) RemoveRootIfEmpty(at);
    throw;
  }
  Node& node = nodes_[child];
  node.page = page;
  node.is_ready = is_ready;
  pool_->SetCached(page.id(), true);
  ++num_pages_;
  Touch(child);
  return Inserted{{child, node.serial}, true};
}

int PrefixTree::AddRoot(std::string_view salt) {
  const int root = NewNode(-1);
  try {
    const auto [at, is_new] = roots_.emplace(salt, root);
    nodes_[root].salt = &at->first;
  } catch (...) {
    GiveNodeBack(root);
    throw;
  }
  return root;
}

int PrefixTree::NewNode(int parent) {
  if (unused_.empty()) {
    const size_t count = nodes_.size() + 1;
    if (nodes_.capacity() < count) {
      const size_t capacity = 2 * count;
      unused_.reserve(capacity);
      tokens_.reserve(capacity * page_size_);
      nodes_.reserve(capacity);
    }
    nodes_.emplace_back();
    tokens_.resize(count * page_size_);
    unused_.push_back(static_cast<int>(count) - 1);
  }
  const int node = unused_.back();
  unused_.pop_back();
  nodes_[node].parent = parent;
  nodes_[node].serial = next_serial_++;
  return node;
}

void PrefixTree::GiveNodeBack(int node) {
  nodes_[node] = Node();
  unused_.push_back(node);  // has room: NewNode reserved it
}

void PrefixTree::AddChild(int parent, int child, const TokenId* tokens) {
  SmallVector<int>& siblings = nodes_[parent].children;
  const bool was_leaf = siblings.empty() && nodes_[parent].page;
  // Allocations that may throw come first.
  if (siblings.size() == siblings.capacity()) {
    siblings.reserve(2 * siblings.size() + 1);
  }
  const size_t at = LowerBound(nodes_[parent], tokens, page_size_);
  if (was_leaf) {
    auto entry = leaves_.extract({nodes_[parent].last_use, parent});
    entry.value() = {0, child};
    leaves_.insert(std::move(entry));
  } else {
    leaves_.emplace(0, child);
  }
  std::copy_n(tokens, page_size_, tokens_.begin() + child * page_size_);
  siblings.push_back(child);
  std::rotate(siblings.begin() + at, siblings.end() - 1, siblings.end());
}

void PrefixTree::Touch(int node) {
  ++clock_;
  if (nodes_[node].children.empty() && nodes_[node].page) {
    auto entry = leaves_.extract({nodes_[node].last_use, node});
    entry.value().first = clock_;
    leaves_.insert(std::move(entry));
  }
  // Its ancestors were used too; RemoveLeaf() passes last_use on to the parent.
  nodes_[node].last_use = clock_;
}

void PrefixTree::RemoveLeaf(int leaf) {
  Node& node = nodes_[leaf];
  CHECK(node.children.empty() && node.page) << "a leaf with a page";
  Node& parent = nodes_[node.parent];
  auto entry = leaves_.extract({node.last_use, leaf});
  const size_t at = LowerBound(parent, TokensOf(leaf), page_size_);
  const auto child = parent.children.begin() + at;
  std::rotate(child, child + 1, parent.children.end());
  parent.children.pop_back();
  parent.last_use = std::max(parent.last_use, node.last_use);
  if (parent.children.empty() && parent.page) {
    entry.value() = {parent.last_use, node.parent};
    leaves_.insert(std::move(entry));
  }
  const int root = parent.page ? -1 : node.parent;
  pool_->SetCached(node.page.id(), false);
  GiveNodeBack(leaf);
  --num_pages_;
  if (root >= 0) RemoveRootIfEmpty(root);
}

void PrefixTree::RemoveRootIfEmpty(int root) {
  if (!nodes_[root].children.empty()) return;
  roots_.erase(roots_.find(*nodes_[root].salt));
  GiveNodeBack(root);
}

void PrefixTree::RemoveSubtree(int node) {
  while (true) {
    int leaf = node;
    while (!nodes_[leaf].children.empty()) leaf = nodes_[leaf].children.back();
    RemoveLeaf(leaf);
    if (leaf == node) return;
  }
}

std::span<const TokenId> PrefixTree::ChainTokens(int64_t num_pages) {
  const size_t count = num_pages * page_size_;
  if (chain_.size() < count) chain_.resize(count);
  return std::span(chain_).first(count);
}

void PrefixTree::MarkReady(Cursor cursor) {
  const int node = cursor.node < 0 ? -1 : NodeAt({}, cursor);
  if (node >= 0) nodes_[node].is_ready = true;
}

void PrefixTree::RemoveFilling(Cursor cursor) {
  const int node = cursor.node < 0 ? -1 : NodeAt({}, cursor);
  if (node >= 0 && !nodes_[node].is_ready) RemoveSubtree(node);
}

// Removes the least recently used idle leaf. Leaves that sequences hold become
// the most recently used and are skipped (second chance). If no leaf is idle,
// idle pages have only held descendants, because a sequence has a private copy
// of the idle page. Leaves are then removed until a page becomes free.
bool PrefixTree::ReclaimPage() {
  if (pool_->num_idle() == 0) return false;
  ++num_evicted_;
  for (size_t num_left = leaves_.size(); num_left > 0; --num_left) {
    const int leaf = leaves_.begin()->second;
    if (!nodes_[leaf].page.shared()) {
      RemoveLeaf(leaf);
      return true;
    }
    Touch(leaf);
  }
  const int num_free = pool_->num_free();
  while (pool_->num_free() == num_free) RemoveLeaf(leaves_.begin()->second);
  return true;
}

void PrefixTree::Clear() {
  while (!leaves_.empty()) RemoveLeaf(leaves_.begin()->second);
}

std::vector<const PageRef*> PrefixTree::Pages() const {
  std::vector<const PageRef*> pages;
  for (const Node& node : nodes_) {
    if (node.page) pages.push_back(&node.page);
  }
  return pages;
}

std::vector<PageId> PrefixTree::FillingPages() const {
  std::vector<PageId> pages;
  for (const Node& node : nodes_) {
    if (node.page && !node.is_ready) pages.push_back(node.page.id());
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

}  // namespace espalier
