// ContinuationWalk: the order in which the continuations of a request are fed
// to be scored. They form a trie below the prompt. Each inner node is fed once,
// and its row of logits scores all tokens that follow it. So a request feeds as
// many tokens as the trie has inner nodes, and never feeds leaves.
//
// One sequence, the *stem*, walks the trie depth first: it is fed down to a
// node, and truncated to the parent of the next part. Parts that do not branch
// and hang from the stem's end are fed side by side, the first by the stem and
// the others by forks of it, which end after the step.
//
//   prompt . a . b . c        step 1   stem: prompt              scores a, x, y
//              . d . e        step 2   stem: a                   scores b, d
//          . x . z            step 3   stem: b; beside it: d     scores c, e
//          . y                step 4   stem: x                   scores z
//
// Among the children of a node, parts that do not branch come first, so that
// most of them share a step. Planned parts are not planned again: after a
// preemption the walk resumes from stem().
//
//   ContinuationWalk walk(continuations);
//   walk.Begin();                              // the prompt's last row
//   while (!walk.all_planned()) {
//     Truncate(num_prompt_tokens + walk.stem().size());
//     for (const WalkRow& row : walk.Take(room)) ...
//   }
//   for (const TokenLogProb& token : results) walk.Score(token);
//   walk.Scores(continuations);
//
// Belongs to its group's strand.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/token_log_prob.h"
#include "constrain/item_catalogue.h"
#include "request/request.h"

namespace espalier {

// A row of a step: a path of nodes from the stem's end downwards.
struct WalkRow {
  std::vector<TokenId> tokens;
  std::vector<ItemCatalogue::Node> nodes;  // [tokens]
};

// Limits of a step.
struct WalkRoom {
  int num_tokens = 1;  // >= 1
  int num_rows = 1;    // >= 1
  // Tokens scored. The first node is taken even if it has more.
  int num_logprob_queries = 1;
  // For rows beside the first: spare pages, and the length of the stem.
  int64_t num_pages = 0;
  int64_t stem_end = 0;
  int page_size = 1;
};

class ContinuationWalk {
 public:
  using Node = ItemCatalogue::Node;

  // Continuations of the request. If there are none, nothing is fed.
  explicit ContinuationWalk(
      std::span<const std::vector<int64_t>> continuations);

  // Returns the largest number of tokens that one row of logits scores.
  int max_asked_at_once() const { return max_asked_at_once_; }
  // Returns the length of the longest fed path.
  int max_length() const { return max_length_; }

  // Starts the walk after the row of logits of the prompt's end is planned.
  // REQUIRES: !has_begun().
  void Begin();
  bool has_begun() const { return has_begun_; }
  bool all_planned() const { return has_begun_ && frames_.empty(); }
  // Returns the number of fed tokens that are in no plan yet.
  int64_t num_pending_tokens() const { return num_pending_; }
  // Returns the stem's tokens after the prompt, before the next row.
  std::span<const TokenId> stem() const { return stem_; }

  // Returns the number of tokens in the first row of the next step. REQUIRES:
  // has_begun(), !all_planned().
  int NumNext(int max_tokens, int max_asked) const;
  // Returns the rows of the next step, the stem's first. REQUIRES: as above.
  std::vector<WalkRow> Take(const WalkRoom& room);

  // Returns the tokens that the row of logits of a node scores.
  std::span<const TokenId> TokensAfter(Node node) const {
    return trie_.Next(node);
  }

  // Records the log-probability of NextToScore(). Nodes are scored in the order
  // of Begin and Take, and the tokens of a node in that of TokensAfter.
  // REQUIRES: a token is left to score.
  void Score(const TokenLogProb& token);
  // Returns the token that Score records next. REQUIRES: as above.
  TokenId NextToScore() const;
  bool all_scored() const { return num_scored_ + 1 == trie_.num_nodes(); }

  // REQUIRES: all_scored(); `continuations` are those of the constructor.
  std::vector<ContinuationScore> Scores(
      std::span<const std::vector<int64_t>> continuations) const;

 private:
  struct NodeScore {
    float log_prob = 0;
    int rank = 0;
    bool is_greedy = false;
  };
  // A node that the stem has fed, and its next child.
  struct Frame {
    Node node = 0;
    int depth = 0;          // tokens from the prompt to it
    Node next = 0;          // child to feed next
    bool branches = false;  // all parts that do not branch are planned
  };

  bool IsFed(Node node) const { return trie_.has_children(node); }
  int NumChildren(Node node) const { return trie_.Children(node).size(); }
  int NumFedChildren(Node node) const {
    const ItemCatalogue::Range children = trie_.Children(node);
    return children.size() - trie_.NumLeaves(children);
  }
  // Returns the only child that is fed. REQUIRES: there is exactly one.
  Node FedChild(Node node) const;
  // True if no node from here downwards has two inner children.
  bool IsPath(Node node) const;
  // Returns the nodes from the next one on up to a branch: at least one.
  WalkRow NextRow(int max_tokens, int max_asked) const;
  // Descends to a node of the stem whose children are fed next.
  void Push(Node node, int depth);
  // Moves to the next child to feed, or up if there is none.
  void Settle();
  void Ask(const WalkRow& row);

  const ItemCatalogue trie_;
  int max_asked_at_once_ = 0;
  int max_length_ = 0;
  int64_t num_pending_ = 0;

  bool has_begun_ = false;
  std::vector<Frame> frames_;  // path from the prompt to the stem's end
  std::vector<TokenId> stem_;
  std::vector<Node> asked_;  // in scoring order
  int num_scored_ = 0;
  std::vector<NodeScore> scores_;  // [num_nodes]
};

}  // namespace espalier
