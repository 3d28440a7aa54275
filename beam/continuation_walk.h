// ContinuationWalk: the order in which the continuations of a request are fed
// to be scored. They are a trie below the prompt; each of its nodes that
// something follows is fed once, and the row of logits that it gives scores all
// tokens that follow. So there are as many tokens to feed as such nodes, and
// leaves are never fed.
//
// One sequence, the *stem*, walks the trie depth first: it is fed down to a
// node, and truncated to where the next part hangs. Parts that do not branch
// and hang from the stem's end are fed side by side, the first by the stem
// itself and the others as forks of it, which are gone after the step.
//
//   prompt . a . b . c        step 1   stem: prompt              scores a, x, y
//              . d . e        step 2   stem: a                   scores b, d
//          . x . z            step 3   stem: b; beside it: d     scores c, e
//          . y                step 4   stem: x                   scores z
//
// Parts that do not branch come first of what hangs from a node, so that most
// of them share a step. What a plan has is not planned again: after a
// preemption the walk resumes where it was, from stem().
//
//   ContinuationWalk walk(continuations);
//   walk.Begin();                              // the prompt's last row
//   while (!walk.all_planned()) {
//     Truncate(num_prompt_tokens + walk.stem().size());
//     for (const WalkRow& row : walk.Take(room)) ...
//   }
//   for (const TokenLogProb& token : of_results) {  // of NextToScore(), in
//   turn
//     walk.Score(token);
//   }
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
#include "beam/strategy/allowed_sequence_trie.h"
#include "request/request.h"

namespace espalier {

// A row of a step: nodes from the stem's end downwards, each the child of the
// one before.
struct WalkRow {
  std::vector<TokenId> tokens;
  std::vector<AllowedSequenceTrie::Node> nodes;  // [tokens]
};

// Room of a step.
struct WalkRoom {
  int num_tokens = 1;  // >= 1
  int num_rows = 1;    // >= 1
  int num_logprob_queries =
      1;  // tokens scored; the first node is taken whatever it has
  // For rows beside the first: pages, and where the stem ends in one.
  int64_t num_pages = 0;
  int64_t stem_end = 0;
  int page_size = 1;
};

class ContinuationWalk {
 public:
  using Node = AllowedSequenceTrie::Node;

  // Continuations of the request; none: nothing is fed.
  explicit ContinuationWalk(
      std::span<const std::vector<int64_t>> continuations);

  // The most tokens that one row of logits scores.
  int max_asked_at_once() const { return max_asked_at_once_; }
  // The length of the longest path that is fed.
  int max_length() const { return max_length_; }

  // The row of logits after the prompt is planned.
  // REQUIRES: !has_begun().
  void Begin();
  bool has_begun() const { return has_begun_; }
  bool all_planned() const { return has_begun_ && frames_.empty(); }
  // Tokens that are in no plan yet.
  int64_t num_pending_tokens() const { return num_pending_; }
  // Tokens of the stem after the prompt when the next row is fed.
  std::span<const TokenId> stem() const { return stem_; }

  // Tokens that the first row of the next step has. REQUIRES: has_begun(),
  // !all_planned().
  int NumNext(int max_tokens, int max_asked) const;
  // The rows of the next step: the first is the stem's. REQUIRES: as above.
  std::vector<WalkRow> Take(const WalkRoom& room);

  // The tokens that the row of logits of a node scores.
  std::span<const TokenId> TokensAfter(Node node) const {
    return trie_.Next(node);
  }

  // Takes the figures of NextToScore(). Nodes follow each other in the order of
  // Begin and Take, and the tokens of a node in that of TokensAfter.
  // REQUIRES: there is one.
  void Score(const TokenLogProb& token);
  // The token that Score takes next. REQUIRES: as above.
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
  // A node that the stem has fed, and which of its children is fed next.
  struct Frame {
    Node node = 0;
    int depth = 0;          // tokens from the prompt to it
    Node next = 0;          // the child that is fed next
    bool branches = false;  // parts that branch are fed now, all others are
  };

  bool IsFed(Node node) const { return trie_.num_children(node) > 0; }
  int NumFedChildren(Node node) const {
    return trie_.num_children(node) - trie_.num_leaf_children(node);
  }
  // The child that is fed, where there is one alone.
  Node FedChild(Node node) const;
  // True if no node from here to the end has two children that are fed.
  bool IsPath(Node node) const;
  // The nodes from the next one on, as long as they do not branch: at least
  // one.
  WalkRow NextRow(int max_tokens, int max_asked) const;
  // A node of the stem whose children are fed next.
  void Push(Node node, int depth);
  // Moves to the child that is fed next, or up.
  void Settle();
  void Ask(const WalkRow& row);

  const AllowedSequenceTrie trie_;
  int max_asked_at_once_ = 0;
  int max_length_ = 0;
  int64_t num_pending_ = 0;

  bool has_begun_ = false;
  std::vector<Frame> frames_;  // from the prompt to the stem's end
  std::vector<TokenId> stem_;
  std::vector<Node> asked_;  // in the order in which they are scored
  int num_scored_ = 0;
  std::vector<NodeScore> scores_;  // [num_nodes]
};

}  // namespace espalier
