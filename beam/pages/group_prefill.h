// GroupPrefill: what a group feeds before its sequences decode. Of a new group
// that is the prompt. Of a group that was preempted and comes back it is all
// that its sequences had fed: first their *stem*, which is the prompt and the
// generated tokens that all of them share, once; then the *branches*, forked
// from the stem, as rows of one multi-query step.
//
//   prompt + shared | branch of rank 0
//                   | branch of rank 1
//
// Both are fed in chunks, as many tokens as a plan has room for. What the
// prefix tree has is not fed but shared (pages/prefix_tree.h), and what host
// memory has of the group is loaded (saved_pages.h); and each full
// page of the stem is announced there as soon as a plan fills it, so that
// groups with the same beginning wait for it instead of computing it too.
//
//   GroupPrefill prefill(&request, source_end, &pages, &tree);
//   while (!prefill.done()) {
//     // Shares what is there.
//     prefill.Match(num_without_logits, num_promised, &plan);
//     if (prefill.is_waiting()) break;  // another group is filling it
//     prefill.OnPlan();
//     RETURN_IF_ERROR(prefill.Feed(max_tokens, max_rows, &plan, add_row));
//   }
//   ...
//   prefill.OnAnswer();  // of each plan, in their order
//
// A source that an encoder reads (source_layout.h) is fed in one chunk with
// the decoder's first token, because each of its parts takes reading all of it.
// What else the decoder begins with is fed as any prompt is.
//
// Without a tree, or with GenerationParams::prefix_cache off, all that is not
// loaded is fed.
//
// Belongs to its group's strand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "beam/pages/group_pages.h"
#include "exec_request/step_plan.h"
#include "pages/prefix_tree.h"
#include "request/request.h"

namespace espalier {

// What a group did not have to feed, and what it fed twice, in tokens.
struct PrefillCounts {
  // Of the prompt: shared instead of fed, until it was fed once.
  int64_t num_cached = 0;
  // After restarts, each token of a branch counted in its sequence: shared, or
  // loaded, instead of fed; and fed though they had been fed.
  int64_t num_shared_again = 0;
  int64_t num_loaded_again = 0;
  int64_t num_fed_again = 0;
};

class GroupPrefill {
 public:
  // A new group's. The arguments outlive this; `tree` may be null.
  //   source_end  SourceLayout::end
  GroupPrefill(const Request* request, int source_end, GroupPages* pages,
               PrefixTree* tree);
  ~GroupPrefill();
  GroupPrefill(const GroupPrefill&) = delete;
  GroupPrefill& operator=(const GroupPrefill&) = delete;

  // The pages were given back: there is nothing to feed until a restart. What
  // is being filled leaves the tree.
  void Stop();
  // Feeds all again, into pages that were restarted. Throws std::bad_alloc,
  // and then Stop may follow.
  //   branches  by rank, of the tokens generated and fed; empty if none was
  void Restart(std::vector<std::vector<TokenId>> branches);

  // Whether all is in plans.
  bool done() const { return is_done_; }
  // Tokens that are not in a plan yet.
  int64_t num_pending_tokens() const;
  // Tokens that its next chunk has at least, however few are asked for: those
  // of a source and the decoder's first. 0: any number.
  int NumTokensAtOnce() const;
  // Sequences that there will be when all is fed.
  int num_branches() const {
    return std::max(1, static_cast<int>(branches_.size()));
  }
  // Whether the next plan that feeds ends the prompt, whose last row of logits
  // decides the first tokens. False of what is fed again.
  bool feeds_prompt() const { return branches_.empty(); }

  // Shares what the tree has of the tokens that come next, and loads what host
  // memory has of the others; copies and loads go into `*plan`. The first
  // `num_without_logits` tokens of a prompt need no logits, or no more: fewer
  // than all. Does nothing while a page is partly filled. `num_promised` pages
  // of those available are for others that the plan has come to before. Throws
  // std::bad_alloc.
  void Match(int64_t num_without_logits, int64_t num_promised, StepPlan* plan);
  // Whether the next page is being filled by another group.
  bool is_waiting() const { return is_waiting_; }

  // Pages that it takes from the pool to feed the next `max_tokens`, and all.
  int64_t NumPagesToFeed(int max_tokens) const;
  int64_t NumPagesToFeedAll() const;

  // Grows at most `max_rows` tables by at most `max_tokens` tokens together.
  // `add_row` is called for each row: its rank, and its tokens.
  // Errors: as GroupPages::Append.
  using AddRow = std::function<void(int rank, const TokenPath& tokens)>;
  absl::Status Feed(int max_tokens, int max_rows, StepPlan* plan,
                    const AddRow& add_row);

  // The group has a part in one more plan, whether it feeds or decodes; and in
  // one more that is answered: what that fed is in the pages.
  void OnPlan() { ++num_planned_; }
  void OnAnswer() {
    if (++num_answered_ <= last_fed_) MarkFilled();
  }
  // Begins to read these numbers.
  [[gnu::always_inline]] void Prefetch() const {
    __builtin_prefetch(&num_planned_);
  }
  // Whether a plan that it has a part in is not answered.
  bool has_plan_in_flight() const { return num_answered_ < num_planned_; }
  // Whether all that was fed is in the pages.
  bool is_filled() const { return num_answered_ >= last_fed_; }

  const PrefillCounts& counts() const { return counts_; }

  // Keeps the full pages of `num_tokens` tokens of a sequence in the tree.
  // Throws std::bad_alloc, and has kept some.
  //   path  its tokens: the prompt, then what was generated
  void Keep(const PageTable& table, const TokenPath& path, int num_tokens);

 private:
  const Request& request() const { return *request_; }
  std::string_view salt() const;
  // All tokens of the stem; and of a rank, which begins with the stem.
  TokenPath StemPath() const;
  TokenPath PathOf(int rank) const;
  int64_t LengthOf(int rank) const;
  bool HasRoomForCopy(int64_t num_promised) const;
  bool HasRoomForLoads(int64_t num_promised) const;
  // Whether the branches can be forked: from the end of the stem; or from its
  // last full page, if host memory has the next one of some.
  bool IsStemPlanned() const;
  // Where the branches' pages are no longer the stem's.
  int FirstBranchPlace() const;
  bool HasSavedBranch() const;
  // Returns how many tokens are no longer pending.
  int64_t MatchAll(int64_t num_without_logits, int64_t num_promised,
                   StepPlan* plan);
  void Fork(StepPlan* plan);
  void MatchStem(int64_t num_without_logits, int64_t num_promised,
                 StepPlan* plan);
  // Of the stem, up to `end`: what the tree has; what is saved of what comes
  // then, if anything is.
  void ShareStem(int64_t end, int64_t num_promised, StepPlan* plan);
  bool LoadStem(int64_t end, int64_t num_promised, StepPlan* plan);
  void MatchBranches(int64_t num_promised, StepPlan* plan);
  void ShareBranch(int rank);
  // Loads what is saved of a rank, from the end of its table on.
  void LoadBranch(int rank, GroupPages::LoadedPages* loaded, StepPlan* plan);
  // Tokens of the stem that are fed before something is saved.
  int64_t NumStemTokensToFeed() const;
  // Tokens each rank feeds next.
  std::vector<int> Chunks(int max_tokens, int max_rows) const;
  void CountFed(int64_t count);
  // The full pages of the stem that have been planned since, by the group's
  // plan of this number.
  void Announce(int64_t plan_number);
  // In the tree, the pages that were filled by plans that are answered.
  void MarkFilled();
  void CheckDone();

  const Request* const request_;
  const int source_end_;
  GroupPages* const pages_;
  PrefixTree* const tree_;  // null: not used

  bool is_done_ = false;
  bool is_waiting_ = false;
  bool is_forked_ = false;
  bool was_fed_ = false;  // the prompt, once
  int64_t num_planned_ = 0;
  int64_t num_answered_ = 0;
  int64_t last_fed_ = 0;  // the plan that fed last
  int64_t stem_length_ = 0;
  std::vector<std::vector<TokenId>> branches_;  // by rank; of a prompt: none
  int64_t prompt_fed_ = 0;  // of its tokens, with those shared, at most so far
  PrefillCounts counts_;
  // In the tree, of the stem: the place after its first num_announced_ pages.
  PrefixTree::Cursor announced_;
  int num_announced_ = 0;
  bool may_announce_ = true;
  // Pages being filled, each with the number of its plan among the group's.
  std::deque<std::pair<int64_t, PrefixTree::Cursor>> filling_;
};

}  // namespace espalier
