#include "beam/continuation_walk.h"

#include <algorithm>

#include "base/check.h"
#include "base/page_count.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

TokenLists ListsOf(std::span<const std::vector<int64_t>> sequences) {
  TokenLists lists;
  for (const std::vector<int64_t>& sequence : sequences) {
    lists.tokens.insert(lists.tokens.end(), sequence.begin(), sequence.end());
    lists.EndList();
  }
  return lists;
}

}  // namespace

ContinuationWalk::ContinuationWalk(
    std::span<const std::vector<int64_t>> continuations)
    : trie_(ListsOf(continuations)) {
  for (Node node = 0; node < trie_.num_nodes(); ++node) {
    max_asked_at_once_ = std::max(max_asked_at_once_, NumChildren(node));
    if (node != ItemCatalogue::kRoot && IsFed(node)) ++num_pending_;
  }
  for (const std::vector<int64_t>& tokens : continuations) {
    max_length_ = std::max(max_length_, static_cast<int>(tokens.size()) - 1);
  }
  asked_.reserve(trie_.num_nodes());
  scores_.resize(trie_.num_nodes());
}

void ContinuationWalk::Begin() {
  CHECK(!has_begun_) << "the prompt's row of logits is planned twice";
  has_begun_ = true;
  Ask({.tokens = {}, .nodes = {ItemCatalogue::kRoot}});
  Push(ItemCatalogue::kRoot, 0);
  Settle();
}

void ContinuationWalk::Ask(const WalkRow& row) {
  for (const Node node : row.nodes) {
    const auto [begin, end] = trie_.Children(node);
    for (Node child = begin; child < end; ++child) asked_.push_back(child);
  }
}

void ContinuationWalk::Push(Node node, int depth) {
  frames_.push_back(
      {.node = node, .depth = depth, .next = trie_.Children(node).begin});
}

ContinuationWalk::Node ContinuationWalk::FedChild(Node node) const {
  Node child = trie_.Children(node).begin;
  while (!IsFed(child)) ++child;
  return child;
}

bool ContinuationWalk::IsPath(Node node) const {
  while (NumFedChildren(node) == 1) node = FedChild(node);
  return NumFedChildren(node) == 0;
}

void ContinuationWalk::Settle() {
  while (!frames_.empty()) {
    Frame& top = frames_.back();
    const auto [first, end] = trie_.Children(top.node);
    while (top.next < end &&
           !(IsFed(top.next) && IsPath(top.next) != top.branches)) {
      ++top.next;
    }
    if (top.next < end) break;
    if (top.branches) {
      frames_.pop_back();
    } else {
      top.branches = true;
      top.next = first;
    }
  }
  stem_.resize(frames_.empty() ? 0 : frames_.back().depth);
}

WalkRow ContinuationWalk::NextRow(int max_tokens, int max_asked) const {
  WalkRow row;
  for (Node node = frames_.back().next;; node = FedChild(node)) {
    max_asked -= NumChildren(node);
    if (!row.nodes.empty() && max_asked < 0) return row;
    row.nodes.push_back(node);
    row.tokens.push_back(trie_.token(node));
    const bool is_full = static_cast<int>(row.nodes.size()) >= max_tokens;
    if (is_full || NumFedChildren(node) != 1) return row;
  }
}

int ContinuationWalk::NumNext(int max_tokens, int max_asked) const {
  return static_cast<int>(NextRow(max_tokens, max_asked).tokens.size());
}

std::vector<WalkRow> ContinuationWalk::Take(const WalkRoom& room) {
  CHECK(has_begun_ && !all_planned()) << "nothing is to be fed";
  std::vector<WalkRow> rows;
  int num_tokens = room.num_tokens;
  int num_logprob_queries = room.num_logprob_queries;
  int64_t num_pages = room.num_pages;
  const size_t num_frames = frames_.size();
  const auto take = [&](WalkRow row) {
    ++frames_.back().next;
    num_tokens -= static_cast<int>(row.tokens.size());
    for (const Node node : row.nodes) num_logprob_queries -= NumChildren(node);
    num_pending_ -= std::ssize(row.tokens);
    Ask(row);
    rows.push_back(std::move(row));
  };

  take(NextRow(num_tokens, num_logprob_queries));
  const Node last = rows[0].nodes.back();
  if (NumFedChildren(last) > 0) {
    const std::vector<TokenId>& fed = rows[0].tokens;
    stem_.insert(stem_.end(), fed.begin(), fed.end());
    Push(last, static_cast<int>(stem_.size()));
    Settle();
    return rows;
  }
  const bool branches = frames_.back().branches;
  Settle();
  // Only complete parts: tokens that a fork has fed are dropped after the step.
  while (static_cast<int>(rows.size()) < room.num_rows && num_tokens > 0 &&
         !branches && frames_.size() == num_frames &&
         !frames_.back().branches) {
    WalkRow row = NextRow(num_tokens, num_logprob_queries);
    int row_asked = 0;
    for (const Node node : row.nodes) row_asked += NumChildren(node);
    const int64_t end = room.stem_end + std::ssize(row.tokens);
    num_pages -= NumPages(end, room.page_size) - room.stem_end / room.page_size;
    if (NumFedChildren(row.nodes.back()) > 0 ||
        row_asked > num_logprob_queries || num_pages < 0) {
      break;
    }
    take(std::move(row));
    Settle();
  }
  return rows;
}

TokenId ContinuationWalk::NextToScore() const {
  return trie_.token(asked_.at(num_scored_));
}

void ContinuationWalk::Score(const TokenLogProb& token) {
  const Node node = asked_.at(num_scored_++);
  const bool is_greedy =
      !token.best.empty() && token.best[0].token == token.token;
  scores_[node] = {token.log_prob, token.rank, is_greedy};
}

std::vector<ContinuationScore> ContinuationWalk::Scores(
    std::span<const std::vector<int64_t>> continuations) const {
  CHECK(all_scored()) << num_scored_ << " of " << trie_.num_nodes() - 1
                      << " tokens are scored";
  std::vector<ContinuationScore> scores;
  scores.reserve(continuations.size());
  for (const std::vector<int64_t>& tokens : continuations) {
    ContinuationScore& score = scores.emplace_back();
    score.tokens.assign(tokens.begin(), tokens.end());
    score.log_probs.reserve(tokens.size());
    score.ranks.reserve(tokens.size());
    Node node = ItemCatalogue::kRoot;
    for (const int64_t token : tokens) {
      node = trie_.Child(node, static_cast<TokenId>(token));
      const NodeScore& scored = scores_[node];
      score.cum_log_prob += scored.log_prob;
      score.is_greedy = score.is_greedy && scored.is_greedy;
      score.log_probs.push_back(scored.log_prob);
      score.ranks.push_back(scored.rank);
    }
  }
  return scores;
}

}  // namespace espalier
