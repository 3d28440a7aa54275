// GroupPrefill: the tokens that a group feeds before its sequences decode. A
// new group feeds its prompt. A group that resumes after a preemption feeds all
// tokens of its sequences again: first their *stem*, which is the prompt and
// the generated tokens that all of them share, once; then the *branches*,
// forked from the stem, as rows of one multi-query step.
//
//   prompt + shared | branch of rank 0
//                   | branch of rank 1
//
// Both are fed in chunks that fit a plan. Pages in the prefix tree are shared
// instead of fed (pages/prefix_tree.h), and pages of the group in host memory
// are loaded (saved_pages.h). Each full page of the stem is announced in the
// tree as soon as a plan fills it, so that groups with the same beginning wait
// for it instead of computing it too.
//
//   GroupPrefill prefill(&request, roots, &pages, &tree);
//   while (!prefill.done()) {
//     // Shares pages of the tree.
//     prefill.Match(num_without_logits, num_promised, &plan);
//     if (prefill.is_waiting()) break;  // another group is filling it
//     prefill.OnPlan();
//     RETURN_IF_ERROR(prefill.Feed(max_tokens, max_rows, &plan, add_row));
//   }
//   ...
//   prefill.OnAnswer();  // for each plan's result, in order
//
// With an encoder the pages of the source come first (source_pages.h): they are
// shared or loaded too, and if any is missing, the encoder fills these in the
// step of the next chunk. Sequences, stem and branches are the decoder's alone.
//
// Without a tree, or with GenerationParams::prefix_cache off, all tokens that
// are not loaded are fed.
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
#include "beam/pages/prefix_roots.h"
#include "exec_request/step_plan.h"
#include "pages/prefix_tree.h"
#include "request/request.h"

namespace espalier {

// Counts of tokens that a group did not have to feed, or fed twice.
struct PrefillCounts {
  // Prompt tokens that were shared instead of fed, until the prompt was fed
  // once. With an encoder the source is the prompt, and tokens that the decoder
  // begins with do not count.
  int64_t num_cached = 0;
  // Tokens that the encoder read, once.
  int64_t num_source_fed = 0;
  // After restarts, counting each token of a branch in its own sequence: tokens
  // shared or loaded instead of fed, and tokens that were fed again.
  int64_t num_shared_again = 0;
  int64_t num_loaded_again = 0;
  int64_t num_fed_again = 0;
};

class GroupPrefill {
 public:
  // Starts the prefill of a new group. The arguments outlive this; `tree` may
  // be null.
  //   request  with an encoder its prompt is the decoder's
  GroupPrefill(const Request* request, PrefixRoots roots, GroupPages* pages,
               PrefixTree* tree);
  ~GroupPrefill();
  GroupPrefill(const GroupPrefill&) = delete;
  GroupPrefill& operator=(const GroupPrefill&) = delete;

  // Stops until a restart, because the pages were released. Removes pages being
  // filled from the tree.
  void Stop();
  // Neither shares pages of the tree nor adds any from now on: they hold what
  // other weights computed. The tree was cleared.
  void LeaveTree();
  // Feeds all tokens again, into pages that were restarted. Throws
  // std::bad_alloc; then Stop may follow.
  //   branches  by rank, the generated and fed tokens; empty if there are none
  void Restart(std::vector<std::vector<TokenId>> branches);

  // True if all tokens are in plans.
  bool done() const { return is_done_; }
  // Returns the number of tokens that are in no plan yet, beside a source.
  int64_t num_pending_tokens() const;
  // Returns the limit of these in its next chunk, if that may have `max_tokens`
  // tokens. A source that the encoder must read counts, but is read at once
  // with at least one token.
  int MaxTokensBesideSource(int max_tokens) const;
  // Returns the number of sequences when all tokens are fed.
  int num_branches() const {
    return std::max(1, static_cast<int>(branches_.size()));
  }
  // True if the prefill is that of the prompt, whose last row of logits decides
  // the first tokens. False if tokens are fed again.
  bool feeds_prompt() const { return branches_.empty(); }

  // Shares the next tokens' pages in the tree, and loads others from host
  // memory; copies and loads go into `*plan`. The first `num_without_logits`
  // tokens of a prompt need no logits; they are fewer than all. Does nothing
  // while a page is partly filled. `num_promised` of the available pages are
  // reserved for groups before it in the plan. Throws std::bad_alloc.
  void Match(int64_t num_without_logits, int64_t num_promised, StepPlan* plan);
  // True if another group is filling the next page.
  bool is_waiting() const { return is_waiting_; }

  // Return the pages that it takes from the pool to feed the next `max_tokens`
  // tokens, or all.
  int64_t NumPagesToFeed(int max_tokens) const;
  int64_t NumPagesToFeedAll() const;

  // Grows at most `max_rows` tables by at most `max_tokens` tokens in total,
  // less those of a source (MaxTokensBesideSource). Calls `add_row` for each
  // row with its rank and tokens.
  // Errors: as GroupPages::Append.
  using AddRow = std::function<void(int rank, const TokenPath& tokens)>;
  absl::Status Feed(int max_tokens, int max_rows, StepPlan* plan,
                    const AddRow& add_row);

  // OnPlan counts a plan with work for the group, whether it feeds or decodes.
  // OnAnswer counts its result: the tokens that it fed are in the pages.
  void OnPlan() { ++num_planned_; }
  void OnAnswer() {
    if (++num_answered_ <= last_fed_) MarkFilled();
  }
  // Prefetches these counters.
  [[gnu::always_inline]] void Prefetch() const {
    __builtin_prefetch(&num_planned_);
  }
  // True if the result of a plan with work for the group is outstanding.
  bool has_plan_in_flight() const { return num_answered_ < num_planned_; }
  // True if all fed tokens are in the pages.
  bool is_filled() const { return num_answered_ >= last_fed_; }

  const PrefillCounts& counts() const { return counts_; }
  const PrefixRoots& roots() const { return roots_; }

  // Caches the full pages of a sequence's first `num_tokens` tokens in the
  // tree. Throws std::bad_alloc; some may be cached then.
  //   path  its tokens: the prompt, then the generated ones
  void Keep(const PageTable& table, const TokenPath& path, int num_tokens);

 private:
  // Pages at the beginning of a path that are in the tree.
  struct AnnouncedPages {
    PrefixTree::Cursor end;  // after them
    int num_pages = 0;
    // False: a page before `end` has left the tree.
    bool may_extend = true;
  };

  const Request& request() const { return *request_; }
  // Tokens of the stem; and of a rank, which begins with the stem.
  TokenPath StemPath() const;
  TokenPath PathOf(int rank) const;
  int64_t LengthOf(int rank) const;
  bool HasRoomForCopy(int64_t num_promised) const;
  bool HasRoomForLoads(int64_t num_promised) const;
  // True if the branches can be forked from the end of the stem, or from its
  // last full page if host memory has the next page of a branch.
  bool IsStemPlanned() const;
  // Returns the first place at which branches do not share the stem's pages.
  int FirstBranchPlace() const;
  bool HasSavedBranch() const;
  // Shares or loads pages of the source.
  void MatchSource(int64_t num_promised, StepPlan* plan);
  void ShareSource();
  // Returns the number of tokens that are no longer pending.
  int64_t MatchAll(int64_t num_without_logits, int64_t num_promised,
                   StepPlan* plan);
  void Fork(StepPlan* plan);
  void MatchStem(int64_t num_without_logits, int64_t num_promised,
                 StepPlan* plan);
  // Share pages of the tree, or load saved pages, for the stem up to `end`.
  // LoadStem returns true if it loaded any.
  void ShareStem(int64_t end, int64_t num_promised, StepPlan* plan);
  bool LoadStem(int64_t end, int64_t num_promised, StepPlan* plan);
  void MatchBranches(int64_t num_promised, StepPlan* plan);
  void ShareBranch(int rank);
  // Loads a rank's saved pages from the end of its table on.
  void LoadBranch(int rank, GroupPages::LoadedPages* loaded, StepPlan* plan);
  // Returns the stem tokens to feed before the next saved page.
  int64_t NumStemTokensToFeed() const;
  // Returns the number of tokens that each rank feeds next.
  std::vector<int> Chunks(int max_tokens, int max_rows) const;
  // Takes the missing pages of the source, which the plan fills.
  absl::Status FeedSource();
  void CountFed(int64_t count);
  // Announces the full pages of the stem, or the pages of the source, that the
  // group's plan `plan_number` fills.
  void Announce(int64_t plan_number);
  void AnnounceSource(int64_t plan_number);
  void AnnouncePage(const std::string& root, std::span<const TokenId> tokens,
                    const PageRef& page, int64_t plan_number,
                    AnnouncedPages* announced);
  // Caches the pages of the source, as Keep.
  void KeepSource();
  // Marks pages in the tree as filled if the plans that fill them have results.
  void MarkFilled();
  void CheckDone();

  const Request* const request_;
  GroupPages* const pages_;
  PrefixTree* tree_;  // null: not used

  bool is_done_ = false;
  bool is_waiting_ = false;
  bool is_forked_ = false;
  bool was_fed_ = false;  // the prompt was fed once
  int64_t num_planned_ = 0;
  int64_t num_answered_ = 0;
  int64_t last_fed_ = 0;  // number of the last plan that fed
  int64_t stem_length_ = 0;
  std::vector<std::vector<TokenId>> branches_;  // by rank; empty for a prompt
  // Largest number of prompt tokens fed or shared so far.
  int64_t prompt_fed_ = 0;
  PrefillCounts counts_;
  AnnouncedPages stem_pages_;  // full ones
  AnnouncedPages source_pages_;
  bool had_source_ = false;  // complete
  // Pages being filled, each with the number of the group's plan that fills it.
  std::deque<std::pair<int64_t, PrefixTree::Cursor>> filling_;
  const PrefixRoots roots_;
};

}  // namespace espalier
