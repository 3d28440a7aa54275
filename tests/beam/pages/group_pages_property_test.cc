// A group's pages against a model without any: each sequence is a plain vector
// of tokens. Whatever parents go on, ahead of answers or behind them, and
// however long each sequence is, it is read back from memory that saw only the
// copies of plans and writes to its own pages, and the group stays within its
// worst case.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "beam/pages/group_pages.h"
#include "pages/validate.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

// A group's pages, the memory behind them, which sees only plans, and
// each sequence by rank as a plain vector of tokens.
class GroupPagesWorld {
 public:
  GroupPagesWorld(const Request& request, int num_slots, int page_size)
      : num_slots_(num_slots),
        page_size_(page_size),
        pool_(static_cast<int>(GroupPages::WorstCase(request, page_size)),
              page_size),
        pages_(num_slots, pool_.num_pages(), &pool_, &ids_),
        memory_(pool_.num_pages() * page_size, -1),
        sequences_(1) {}

  void Append(const std::vector<int>& num_tokens) {
    std::vector<PageCopy> copies;
    RC_ASSERT(Message(pages_.Append(num_tokens, &copies)) == "");
    RC_ASSERT(copies.size() < static_cast<size_t>(num_slots_));
    MakeCopies(copies);
    for (int rank = 0; rank < pages_.num_sequences(); ++rank) {
      RC_ASSERT(Write(rank) == num_tokens[rank]);
    }
    Check();
  }

  // An answer without a step planned ahead of it.
  void Reorder(const std::vector<int>& parent_ranks) {
    StepPlan plan;
    pages_.Reorder(parent_ranks, &plan);
    Follow(parent_ranks);
    Check();
  }

  // A step planned before the answer, and run by an executor that moves
  // sequences itself.
  void StepAhead(const std::vector<int>& parent_ranks) {
    const absl::StatusOr<SmallVector<PageId>> tails = pages_.ReserveTails();
    RC_ASSERT(Message(tails.status()) == "");
    RC_ASSERT(Message(ValidateTails(pool_, *tails)) == "");
    Check();
    const std::vector<int> old_slots(pages_.slots().begin(),
                                     pages_.slots().end());
    StepPlan plan;
    pages_.Reorder(parent_ranks, &plan);
    RC_ASSERT(plan.forks.empty());
    std::vector<PageCopy> copies;
    for (size_t rank = 0; rank < parent_ranks.size(); ++rank) {
      const int num_tokens =
          static_cast<int>(sequences_[parent_ranks[rank]].size()) % page_size_;
      const PageId from = (*tails)[old_slots[parent_ranks[rank]]];
      const PageId to = (*tails)[pages_.slots()[rank]];
      if (from != to && num_tokens > 0)
        copies.push_back({from, to, num_tokens});
    }
    RC_ASSERT(static_cast<int>(copies.size()) ==
              pages_.num_tail_copies_ahead());
    MakeCopies(copies);
    Follow(parent_ranks);
    for (int rank = 0; rank < pages_.num_sequences(); ++rank) {
      RC_ASSERT(Write(rank) == 1);
    }
    Check();
  }

  int length(int rank) const { return pages_.sequence(rank).num_tokens(); }
  int num_sequences() const { return pages_.num_sequences(); }
  int num_copies() const { return num_copies_; }
  bool held_worst_case() const { return max_held_ == pool_.num_pages(); }
  void Release() {
    std::vector<SequenceId> finished;
    const size_t num_live = pages_.num_sequences();
    pages_.Release(&finished);
    RC_ASSERT(finished.size() == num_live);
    RC_ASSERT(pool_.num_held() == 0);
  }

 private:
  std::vector<PageId> Pages(int rank) const {
    std::vector<PageId> ids;
    for (const PageRef& page : pages_.sequence(rank).pages.pages()) {
      ids.push_back(page.id());
    }
    return ids;
  }

  int& Slot(int rank, int position) {
    const PageId page =
        pages_.sequence(rank).pages.pages()[position / page_size_].id();
    return memory_[page.value * page_size_ + position % page_size_];
  }

  void MakeCopies(const std::vector<PageCopy>& copies) {
    RC_ASSERT(Message(ValidateCopies(pool_, copies)) == "");
    num_copies_ += static_cast<int>(copies.size());
    for (auto copy = copies.rbegin(); copy != copies.rend(); ++copy) {
      const auto from = memory_.begin() + copy->from.value * page_size_;
      const auto to = memory_.begin() + copy->to.value * page_size_;
      std::fill_n(to, page_size_, -2);
      std::copy_n(from, copy->num_tokens, to);
    }
  }

  // Writes the step's tokens: positions of the table that the model has not
  // yet. Returns their number.
  int Write(int rank) {
    std::vector<PageId> ids = Pages(rank);
    const int first = static_cast<int>(sequences_[rank].size());
    const int num_tokens = length(rank) - first;
    RC_ASSERT(Message(ValidateWrites(pool_, ids, first, num_tokens)) == "");
    for (int i = 0; i < num_tokens; ++i) {
      Slot(rank, first + i) = next_token_;
      sequences_[rank].push_back(next_token_++);
    }
    return num_tokens;
  }

  void Follow(const std::vector<int>& parent_ranks) {
    std::vector<std::vector<int>> children;
    for (const int rank : parent_ranks) children.push_back(sequences_[rank]);
    sequences_ = std::move(children);
  }

  void Check() {
    max_held_ = std::max(max_held_, pool_.num_held());
    RC_ASSERT(Message(ValidatePages(pool_, pages_.Tables(), pages_.Tails())) ==
              "");
    RC_ASSERT(Message(ValidateNumHeld(pages_.Tables(), pages_.Tails(),
                                      pages_.max_pages())) == "");
    RC_ASSERT(pages_.num_sequences() == static_cast<int>(sequences_.size()));
    for (int rank = 0; rank < pages_.num_sequences(); ++rank) {
      const std::vector<int>& tokens = sequences_[rank];
      RC_ASSERT(length(rank) == static_cast<int>(tokens.size()));
      for (size_t i = 0; i < tokens.size(); ++i) {
        RC_ASSERT(Slot(rank, static_cast<int>(i)) == tokens[i]);
      }
    }
  }

  const int num_slots_;
  const int page_size_;
  PagePool pool_;
  SequenceIdSource ids_;
  GroupPages pages_;
  std::vector<int> memory_;                  // [num_pages * page_size]
  std::vector<std::vector<int>> sequences_;  // by rank
  int next_token_ = 0;
  int num_copies_ = 0;
  int max_held_ = 0;
};

// Returns any number of the whole range, however small the case.
int AnyInRange(int first, int end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(first, end));
}

std::vector<int> AnyParents(int num_slots, const GroupPagesWorld& world) {
  std::vector<int> parents(AnyInRange(1, num_slots + 1));
  for (int& rank : parents) rank = AnyInRange(0, world.num_sequences());
  return parents;
}

// So many tokens for each sequence, within the limit of their lengths.
void FeedSome(int max_length, GroupPagesWorld* world) {
  std::vector<int> num_tokens;
  for (int rank = 0; rank < world->num_sequences(); ++rank) {
    const int num_left = max_length - world->length(rank);
    num_tokens.push_back(AnyInRange(1, std::min(num_left, 4) + 1));
  }
  world->Append(num_tokens);
}

bool HaveRoom(int max_length, const GroupPagesWorld& world) {
  for (int rank = 0; rank < world.num_sequences(); ++rank) {
    if (world.length(rank) == max_length) return false;
  }
  return true;
}

// The pool has the worst case and not a page more.
RC_GTEST_PROP(GroupPagesPropertyTest, SequencesReadBackWithinTheWorstCase, ()) {
  const int page_size = *rc::gen::element(1, 2, 3, 4, 16);
  const int num_slots = AnyInRange(1, 6);
  const int max_new_tokens = AnyInRange(2, 20);
  const int num_prompt_tokens = AnyInRange(1, 40);
  const int max_length = num_prompt_tokens + max_new_tokens - 1;
  Request request;
  request.prompt_tokens.resize(num_prompt_tokens);
  request.params.num_beams = num_slots;
  request.params.max_new_tokens = max_new_tokens;
  GroupPagesWorld world(request, num_slots, page_size);
  while (world.length(0) < num_prompt_tokens) {
    world.Append({AnyInRange(1, num_prompt_tokens - world.length(0) + 1)});
  }
  bool went_ahead = false;
  const int num_steps = AnyInRange(0, 20);
  for (int i = 0; i < num_steps && HaveRoom(max_length, world); ++i) {
    const std::vector<int> parents = AnyParents(num_slots, world);
    const bool ahead = AnyInRange(0, 2) == 1;
    went_ahead = went_ahead || ahead;
    if (ahead) {
      world.StepAhead(parents);
    } else {
      world.Reorder(parents);
      FeedSome(max_length, &world);
    }
  }
  RC_CLASSIFY(world.held_worst_case(), "held its worst case");
  RC_CLASSIFY(world.num_copies() > 0, "a tail was copied");
  RC_CLASSIFY(went_ahead, "went ahead");
  world.Release();
}

}  // namespace
}  // namespace espalier
