#include "beam/pages/group_prefill.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/page_count.h"
#include "base/status.h"

namespace espalier {
namespace {

// Returns tokens [first, first + count) of a path.
TokenPath Part(const TokenPath& path, int64_t first, int64_t count) {
  const int64_t num_head = path.head.size();
  const int64_t in_head = std::clamp<int64_t>(num_head - first, 0, count);
  TokenPath part;
  if (in_head > 0) part.head = path.head.subspan(first, in_head);
  if (in_head < count) {
    part.rest = path.rest.subspan(std::max<int64_t>(first - num_head, 0),
                                  count - in_head);
  }
  return part;
}

size_t CommonLength(const std::vector<std::vector<TokenId>>& sequences) {
  size_t length = sequences[0].size();
  for (const std::vector<TokenId>& sequence : sequences) {
    length = std::mismatch(sequences[0].begin(), sequences[0].begin() + length,
                           sequence.begin(), sequence.end())
                 .first -
             sequences[0].begin();
  }
  return length;
}

}  // namespace

GroupPrefill::GroupPrefill(const Request* request, PrefixRoots roots,
                           GroupPages* pages, PrefixTree* tree)
    : request_(request),
      pages_(pages),
      tree_(request->params.prefix_cache ? tree : nullptr),
      stem_length_(std::ssize(request->prompt_tokens)),
      roots_(std::move(roots)) {}

GroupPrefill::~GroupPrefill() { Stop(); }

void GroupPrefill::Stop() {
  for (const auto& [plan, page] : filling_) tree_->RemoveFilling(page);
  filling_.clear();
  stem_pages_ = {};
  source_pages_ = {};
  is_waiting_ = false;
  is_forked_ = false;
  is_done_ = false;
  was_fed_ = true;  // in part
  branches_.clear();
}

void GroupPrefill::LeaveTree() {
  filling_.clear();
  stem_pages_ = {};
  source_pages_ = {};
  is_waiting_ = false;
  tree_ = nullptr;
}

void GroupPrefill::Restart(std::vector<std::vector<TokenId>> branches) {
  Stop();
  stem_length_ = std::ssize(request().prompt_tokens);
  if (branches.empty()) return;
  stem_length_ += CommonLength(branches);
  branches_ = std::move(branches);
}

TokenPath GroupPrefill::StemPath() const {
  TokenPath path = {request().prompt_tokens};
  if (!branches_.empty()) {
    path.rest = std::span(branches_[0]).first(stem_length_ - path.head.size());
  }
  return path;
}

TokenPath GroupPrefill::PathOf(int rank) const {
  return {request().prompt_tokens, branches_[rank]};
}

int64_t GroupPrefill::LengthOf(int rank) const {
  if (!is_forked_) return stem_length_;
  return static_cast<int64_t>(PathOf(rank).size());
}

int64_t GroupPrefill::num_pending_tokens() const {
  if (is_done_) return 0;
  int64_t count = 0;
  if (!is_forked_) {
    count = stem_length_ - pages_->sequence(0).num_tokens();
    for (const std::vector<TokenId>& branch : branches_) {
      count += std::ssize(request().prompt_tokens) + std::ssize(branch) -
               stem_length_;
    }
    return count;
  }
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    count += LengthOf(rank) - pages_->sequence(rank).num_tokens();
  }
  return count;
}

int64_t GroupPrefill::NumStemTokensToFeed() const {
  const int num_planned = pages_->sequence(0).num_tokens();
  const int64_t left = stem_length_ - num_planned;
  // A prompt is fed to its end, because EndsPrompt() predicts that.
  if (feeds_prompt() || pages_->saved().empty()) return left;
  const int page_size = pages_->pool().page_size();
  int next = pages_->saved().NextAfter(0, num_planned / page_size);
  if (branches_.size() > 1) {
    const int last = FirstBranchPlace();
    if (next < 0 || next > last) next = -1;
    if (next < 0 && last > num_planned / page_size && HasSavedBranch()) {
      next = last;
    }
  }
  if (next < 0) return left;
  return std::min(left, int64_t{next} * page_size - num_planned);
}

int GroupPrefill::MaxTokensBesideSource(int max_tokens) const {
  const SourcePages& source = pages_->source();
  if (is_done_ || source.num_missing() == 0) return max_tokens;
  return std::max(max_tokens - source.length(), 1);
}

std::vector<int> GroupPrefill::Chunks(int max_tokens, int max_rows) const {
  std::vector<int> chunks;
  max_tokens = MaxTokensBesideSource(max_tokens);
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    const int64_t left =
        is_forked_ ? LengthOf(rank) - pages_->sequence(rank).num_tokens()
                   : NumStemTokensToFeed();
    const int count =
        max_rows == 0 ? 0
                      : static_cast<int>(std::min<int64_t>(left, max_tokens));
    chunks.push_back(count);
    max_tokens -= count;
    max_rows -= count > 0 ? 1 : 0;
  }
  return chunks;
}

int64_t GroupPrefill::NumPagesToFeed(int max_tokens) const {
  if (is_done_) return 0;
  return pages_->source().num_missing() +
         pages_->NumPagesToAppend(
             Chunks(max_tokens, std::numeric_limits<int>::max()));
}

int64_t GroupPrefill::NumPagesToFeedAll() const {
  if (is_done_) return 0;
  const int page_size = pages_->pool().page_size();
  int64_t count = pages_->source().num_missing();
  if (!is_forked_) {
    count += NumPages(stem_length_, page_size) -
             std::ssize(pages_->sequence(0).pages.pages());
    const int64_t num_shared = stem_length_ / page_size;
    // A single sequence is the stem.
    if (branches_.size() <= 1) return count;
    count -= NumPages(stem_length_, page_size) - num_shared;
    for (size_t rank = 0; rank < branches_.size(); ++rank) {
      count += NumPages(PathOf(static_cast<int>(rank)).size(), page_size) -
               num_shared;
    }
    return count;
  }
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    const PageTable& table = pages_->sequence(rank).pages;
    count += NumPages(LengthOf(rank), page_size) - std::ssize(table.pages());
    const bool has_tail = table.num_tokens() % page_size > 0;
    if (has_tail && table.pages().back().shared()) ++count;
  }
  return count;
}

void GroupPrefill::Match(int64_t num_without_logits, int64_t num_promised,
                         StepPlan* plan) {
  is_waiting_ = false;
  if (is_done_) return;
  MatchSource(num_promised, plan);
  // A source is read in a step that feeds a token.
  if (is_waiting_ || pages_->source().num_missing() > 0) return;
  const bool again = was_fed_;
  const int64_t num_loaded_before = counts_.num_loaded_again;
  const int64_t num_matched = MatchAll(num_without_logits, num_promised, plan);
  const int64_t num_loaded = counts_.num_loaded_again - num_loaded_before;
  if (again) {
    counts_.num_shared_again += num_matched - num_loaded;
  } else if (!pages_->source().has_source()) {
    counts_.num_cached += num_matched - num_loaded;
  }
  CheckDone();
}

void GroupPrefill::MatchSource(int64_t num_promised, StepPlan* plan) {
  const SourcePages& source = pages_->source();
  while (source.num_missing() > 0) {
    const int num_before = source.NumPositions();
    ShareSource();
    (was_fed_ ? counts_.num_shared_again : counts_.num_cached) +=
        source.NumPositions() - num_before;
    if (is_waiting_ || !HasRoomForLoads(num_promised)) return;
    const int num_shared = source.NumPositions();
    pages_->LoadSource(plan);
    const int num_loaded = source.NumPositions() - num_shared;
    if (num_loaded == 0) return;
    counts_.num_loaded_again += num_loaded;
    last_fed_ = num_planned_ + 1;
    AnnounceSource(last_fed_);
  }
  had_source_ = true;
}

void GroupPrefill::ShareSource() {
  SourcePages& source = pages_->source();
  if (tree_ == nullptr || !source_pages_.may_extend ||
      source_pages_.num_pages != source.num_held()) {
    return;
  }
  PrefixMatch match = tree_->Find(roots_.source, source_pages_.end,
                                  {tree_->ChainTokens(source.num_missing())});
  is_waiting_ = match.is_filling;
  source_pages_.num_pages += static_cast<int>(std::ssize(match.pages));
  source_pages_.end = match.end;
  source.Adopt(std::move(match.pages));
}

int64_t GroupPrefill::MatchAll(int64_t num_without_logits, int64_t num_promised,
                               StepPlan* plan) {
  int64_t num_pending = num_pending_tokens();
  int64_t num_matched = 0;
  if (!is_forked_) {
    MatchStem(num_without_logits, num_promised, plan);
    num_matched = num_pending - num_pending_tokens();
  }
  if (!is_forked_ && branches_.size() > 1 && IsStemPlanned()) {
    Fork(plan);
    num_pending = num_pending_tokens();
    MatchBranches(num_promised, plan);
    num_matched += num_pending - num_pending_tokens();
  }
  return num_matched;
}

int GroupPrefill::FirstBranchPlace() const {
  return static_cast<int>(stem_length_ / pages_->pool().page_size());
}

bool GroupPrefill::HasSavedBranch() const {
  const int place = FirstBranchPlace();
  const int num_of_stem =
      static_cast<int>(stem_length_ % pages_->pool().page_size());
  for (int rank = 0; rank < std::ssize(branches_); ++rank) {
    const SavedPage* const saved = pages_->saved().Find(rank, place);
    if (saved != nullptr && saved->num_tokens > num_of_stem) return true;
  }
  return false;
}

bool GroupPrefill::IsStemPlanned() const {
  const int64_t num_planned = pages_->sequence(0).num_tokens();
  if (num_planned == stem_length_) return true;
  return num_planned ==
             int64_t{FirstBranchPlace()} * pages_->pool().page_size() &&
         HasSavedBranch();
}

void GroupPrefill::MatchStem(int64_t num_without_logits, int64_t num_promised,
                             StepPlan* plan) {
  // Prompt tokens with logits must be fed.
  int64_t end = stem_length_;
  if (feeds_prompt()) end = num_without_logits;
  do {
    ShareStem(end, num_promised, plan);
  } while (!is_waiting_ && LoadStem(end, num_promised, plan));
}

void GroupPrefill::ShareStem(int64_t end, int64_t num_promised,
                             StepPlan* plan) {
  const int64_t first = pages_->sequence(0).num_tokens();
  const int page_size = pages_->pool().page_size();
  if (tree_ == nullptr || !stem_pages_.may_extend || first % page_size != 0 ||
      stem_pages_.num_pages != first / page_size || end <= first) {
    return;
  }
  PrefixMatch match = tree_->Find(roots_.tokens, stem_pages_.end,
                                  Part(StemPath(), first, end - first));
  is_waiting_ = match.is_filling;
  int64_t num_matched = std::ssize(match.pages) * page_size;
  stem_pages_.num_pages += static_cast<int>(std::ssize(match.pages));
  stem_pages_.end = match.end;
  pages_->AdoptPages(0, std::move(match.pages));
  // Copying keys and values is cheaper than computing them, even for one token.
  // But branches copy the end of the stem in the plan that forks them, and
  // copies of one plan cannot depend on each other.
  int64_t num_copied = match.num_tail_tokens;
  if (branches_.size() > 1) {
    num_copied = std::min(num_copied, stem_length_ - 1 - first - num_matched);
  }
  const int place = static_cast<int>((first + num_matched) / page_size);
  if (pages_->saved().Find(0, place) != nullptr) num_copied = 0;
  if (num_copied > 0 && !is_waiting_ && HasRoomForCopy(num_promised) &&
      pages_
          ->AppendCopy(0, std::move(match.tail), static_cast<int>(num_copied),
                       &plan->page_copies)
          .ok()) {
    num_matched += num_copied;
  }
}

bool GroupPrefill::LoadStem(int64_t end, int64_t num_promised, StepPlan* plan) {
  const int page_size = pages_->pool().page_size();
  // Branches have their own page at its end.
  if (branches_.size() > 1) end = int64_t{FirstBranchPlace()} * page_size;
  bool has_loaded = false;
  GroupPages::LoadedPages loaded;
  while (true) {
    const int first = pages_->sequence(0).num_tokens();
    if (first % page_size != 0 || first >= end) break;
    const SavedPage* const saved = pages_->saved().Find(0, first / page_size);
    if (saved == nullptr || !HasRoomForLoads(num_promised)) break;
    const int num_tokens =
        static_cast<int>(std::min<int64_t>(saved->num_tokens, end - first));
    if (!pages_->Load(0, 0, num_tokens, &loaded, plan).ok()) break;
    counts_.num_loaded_again += num_tokens;
    has_loaded = true;
  }
  if (!has_loaded) return false;
  last_fed_ = num_planned_ + 1;
  Announce(last_fed_);
  return true;
}

// Loading takes no more pages than feeding does.
bool GroupPrefill::HasRoomForLoads(int64_t num_promised) const {
  return num_promised + NumPagesToFeedAll() <= pages_->pool().num_available();
}

// The source page of the copy is in use until the plan is written, so the
// group's other pages must be available beside it.
bool GroupPrefill::HasRoomForCopy(int64_t num_promised) const {
  return num_promised + NumPagesToFeedAll() + pages_->num_slots() <=
         pages_->pool().num_available();
}

void GroupPrefill::Fork(StepPlan* plan) {
  const std::vector<int> parents(branches_.size(), 0);
  pages_->Reorder(parents, plan);
  is_forked_ = true;
}

void GroupPrefill::MatchBranches(int64_t num_promised, StepPlan* plan) {
  const bool has_room = HasRoomForLoads(num_promised);
  GroupPages::LoadedPages loaded;
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    ShareBranch(rank);
    if (has_room) LoadBranch(rank, &loaded, plan);
  }
  if (!loaded.empty()) last_fed_ = num_planned_ + 1;
}

void GroupPrefill::ShareBranch(int rank) {
  if (tree_ == nullptr) return;
  const int page_size = pages_->pool().page_size();
  const PrefixTree::Cursor stem =
      stem_pages_.num_pages == stem_length_ / page_size ? stem_pages_.end
                                                        : PrefixTree::Cursor{};
  const int64_t first =
      stem.node < 0 ? 0 : stem_length_ / page_size * page_size;
  PrefixMatch match = tree_->Find(
      roots_.tokens, stem, Part(PathOf(rank), first, LengthOf(rank) - first));
  const int64_t num_matched = first / page_size + std::ssize(match.pages);
  const int64_t num_shared = stem_length_ / page_size;
  if (num_matched <= num_shared) return;
  match.pages.erase(match.pages.begin(),
                    match.pages.begin() + (num_shared - first / page_size));
  pages_->ReplaceTail(rank, std::move(match.pages));
}

void GroupPrefill::LoadBranch(int rank, GroupPages::LoadedPages* loaded,
                              StepPlan* plan) {
  const int page_size = pages_->pool().page_size();
  while (true) {
    const int length = pages_->sequence(rank).num_tokens();
    const SavedPage* const saved =
        pages_->saved().Find(rank, length / page_size);
    if (saved == nullptr) return;
    const int first = length / page_size * page_size;
    const int num_tokens = static_cast<int>(
        std::min<int64_t>(saved->num_tokens, LengthOf(rank) - first));
    if (num_tokens <= length - first) return;
    if (length > first) pages_->ReplaceTail(rank, {});
    if (!pages_->Load(rank, rank, num_tokens, loaded, plan).ok()) return;
    counts_.num_loaded_again += first + num_tokens - length;
  }
}

absl::Status GroupPrefill::Feed(int max_tokens, int max_rows, StepPlan* plan,
                                const AddRow& add_row) {
  CHECK(!is_done_) << "all is fed";
  const std::vector<int> chunks = Chunks(max_tokens, max_rows);
  RETURN_IF_ERROR(FeedSource());
  RETURN_IF_ERROR(pages_->Append(chunks, &plan->page_copies));
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    if (chunks[rank] == 0) continue;
    const int end = pages_->sequence(rank).num_tokens();
    add_row(rank, Part(is_forked_ ? PathOf(rank) : StemPath(),
                       end - chunks[rank], chunks[rank]));
  }
  CountFed(std::accumulate(chunks.begin(), chunks.end(), int64_t{0}));
  last_fed_ = num_planned_;
  if (!is_forked_) Announce(num_planned_);
  CheckDone();
  return absl::OkStatus();
}

absl::Status GroupPrefill::FeedSource() {
  SourcePages& source = pages_->source();
  if (source.num_missing() == 0) return absl::OkStatus();
  const int num_stored = source.NumPositions();
  RETURN_IF_ERROR(source.TakeMissing());
  const bool again = std::exchange(had_source_, true);
  (again ? counts_.num_fed_again : counts_.num_source_fed) +=
      source.length() - num_stored;
  AnnounceSource(num_planned_);
  return absl::OkStatus();
}

void GroupPrefill::CountFed(int64_t count) {
  if (!feeds_prompt()) {
    counts_.num_fed_again += count;
    return;
  }
  // A group preempted within its prompt had fed only its beginning.
  const int64_t end = pages_->sequence(0).num_tokens();
  counts_.num_fed_again +=
      std::clamp<int64_t>(prompt_fed_ - (end - count), 0, count);
  prompt_fed_ = std::max(prompt_fed_, end);
}

void GroupPrefill::Announce(int64_t plan_number) {
  if (tree_ == nullptr) return;
  const int page_size = pages_->pool().page_size();
  const PageTable& table = pages_->sequence(0).pages;
  const int num_full = table.num_tokens() / page_size;
  std::vector<TokenId> tokens;
  while (stem_pages_.may_extend && stem_pages_.num_pages < num_full) {
    const int place = stem_pages_.num_pages;
    const TokenPath page =
        Part(StemPath(), int64_t{place} * page_size, page_size);
    tokens.assign(page.head.begin(), page.head.end());
    tokens.insert(tokens.end(), page.rest.begin(), page.rest.end());
    AnnouncePage(roots_.tokens, tokens, table.pages()[place], plan_number,
                 &stem_pages_);
  }
}

void GroupPrefill::AnnounceSource(int64_t plan_number) {
  if (tree_ == nullptr) return;
  const PageTable& table = pages_->source().table();
  const std::span<const TokenId> edge = tree_->ChainTokens(1);
  while (source_pages_.may_extend &&
         source_pages_.num_pages < std::ssize(table.pages())) {
    AnnouncePage(roots_.source, edge, table.pages()[source_pages_.num_pages],
                 plan_number, &source_pages_);
  }
}

void GroupPrefill::AnnouncePage(const std::string& root,
                                std::span<const TokenId> tokens,
                                const PageRef& page, int64_t plan_number,
                                AnnouncedPages* announced) {
  filling_.emplace_back();  // reserved first, in case of std::bad_alloc
  const auto inserted =
      tree_->Insert(root, announced->end, tokens, page, PageState::kFilling);
  if (!inserted || !inserted->is_new) filling_.pop_back();
  announced->may_extend = inserted.has_value();
  if (!inserted) return;
  announced->end = inserted->cursor;
  ++announced->num_pages;
  if (inserted->is_new) filling_.back() = {plan_number, announced->end};
}

void GroupPrefill::CheckDone() {
  if (!is_forked_ && branches_.size() > 1) return;
  for (int rank = 0; rank < pages_->num_sequences(); ++rank) {
    if (pages_->sequence(rank).num_tokens() < LengthOf(rank)) return;
  }
  is_done_ = true;
  was_fed_ = true;
}

void GroupPrefill::MarkFilled() {
  while (!filling_.empty() && filling_.front().first <= num_answered_) {
    tree_->MarkReady(filling_.front().second);
    filling_.pop_front();
  }
}

void GroupPrefill::Keep(const PageTable& table, const TokenPath& path,
                        int num_tokens) {
  if (tree_ == nullptr) return;
  KeepSource();
  const int page_size = pages_->pool().page_size();
  const int num_full = std::min(num_tokens, table.num_tokens()) / page_size;
  PrefixTree::Cursor at = stem_pages_.end;
  int page = stem_pages_.num_pages;
  if (!stem_pages_.may_extend || stem_pages_.num_pages > num_full) {
    at = {};
    page = 0;
  }
  std::vector<TokenId> tokens;
  for (; page < num_full; ++page) {
    const TokenPath part = Part(path, int64_t{page} * page_size, page_size);
    tokens.assign(part.head.begin(), part.head.end());
    tokens.insert(tokens.end(), part.rest.begin(), part.rest.end());
    const auto inserted = tree_->Insert(roots_.tokens, at, tokens,
                                        table.pages()[page], PageState::kReady);
    if (inserted) {
      at = inserted->cursor;
      continue;
    }
    // The pages before it have left the tree.
    at = {};
    page = -1;
    stem_pages_.may_extend = false;
  }
  // The decoder's pages match nothing without the source, so it is evicted
  // after them: it becomes the most recently used.
  if (source_pages_.num_pages > 0) {
    tree_->Find(roots_.source, source_pages_.end, {});
  }
}

void GroupPrefill::KeepSource() {
  if (source_pages_.may_extend) return;  // all are in the tree
  const PageTable& table = pages_->source().table();
  const std::span<const TokenId> edge = tree_->ChainTokens(1);
  AnnouncedPages kept = {};
  for (const PageRef& page : table.pages()) {
    const auto inserted =
        tree_->Insert(roots_.source, kept.end, edge, page, PageState::kReady);
    if (!inserted) return;
    kept.end = inserted->cursor;
    ++kept.num_pages;
  }
  source_pages_ = kept;
}

}  // namespace espalier
