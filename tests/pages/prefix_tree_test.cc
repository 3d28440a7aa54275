#include "pages/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/page_count.h"
#include "base/status.h"
#include "pages/page_table.h"
#include "pages/validate.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

constexpr int kPageSize = 4;

Tokens Iota(TokenId first, int count) {
  Tokens tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = first + i;
  return tokens;
}

std::vector<PageId> IdsOf(const PrefixMatch& match) {
  std::vector<PageId> ids;
  for (const PageRef& page : match.pages) ids.push_back(page.id());
  return ids;
}

// Pages with the same edge, as many as there are; their tokens are not copied
// for each lookup.
TEST(PrefixTreeChainTest, AChainIsFoundAsFarAsItsPagesAreReady) {
  PagePool pool(8, kPageSize);
  PrefixTree tree(&pool);
  PrefixTree::Cursor end;
  std::vector<PageId> inserted;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(IdsOf(tree.Find("hash", {}, {tree.ChainTokens(7)})), inserted);
    const PageRef page = *pool.Allocate();
    inserted.push_back(page.id());
    end = tree.Insert("hash", end, tree.ChainTokens(1), page, PageState::kReady)
              ->cursor;
  }
  EXPECT_EQ(IdsOf(tree.Find("hash", {}, {tree.ChainTokens(4)})), inserted);
  EXPECT_THAT(IdsOf(tree.Find("hash", {}, {tree.ChainTokens(2)})),
              ElementsAre(inserted[0], inserted[1]));
  EXPECT_THAT(IdsOf(tree.Find("other", {}, {tree.ChainTokens(4)})), IsEmpty());
  EXPECT_EQ(tree.ChainTokens(7).data(), tree.ChainTokens(3).data());
}

class PrefixTreeTest : public ::testing::Test {
 protected:
  // The full pages of `tokens`, ready; returns their ids.
  std::vector<PageId> Store(const Tokens& tokens, std::string_view salt = "") {
    PrefixTree::Cursor at;
    std::vector<PageId> ids;
    std::vector<PageRef> pages;  // held to the end, as a table holds them
    for (size_t first = 0; first + kPageSize <= tokens.size();
         first += kPageSize) {
      pages.push_back(*pool_.Allocate());
      at = tree_
               .Insert(salt, at, std::span(tokens).subspan(first, kPageSize),
                       pages.back(), PageState::kReady)
               ->cursor;
      ids.push_back(pages.back().id());
    }
    return ids;
  }

  PrefixMatch Find(const Tokens& tokens, std::string_view salt = "") {
    return tree_.Find(salt, {}, {tokens});
  }

  PagePool pool_{8, kPageSize};
  PrefixTree tree_{&pool_};
};

TEST_F(PrefixTreeTest, FindsTheLongestMatchInFullPages) {
  const std::vector<PageId> ids = Store(Iota(0, 12));
  EXPECT_EQ(IdsOf(Find(Iota(0, 12))), ids);
  EXPECT_THAT(IdsOf(Find(Iota(0, 8))), ElementsAre(ids[0], ids[1]));
  EXPECT_THAT(IdsOf(Find(Iota(0, 100))), ElementsAre(ids[0], ids[1], ids[2]));
  EXPECT_THAT(IdsOf(Find(Iota(1, 12))), IsEmpty());
  EXPECT_THAT(IdsOf(Find({})), IsEmpty());
}

TEST_F(PrefixTreeTest, AMatchMayEndInsideAPage) {
  const std::vector<PageId> ids = Store(Iota(0, 8));
  const PrefixMatch match = Find({0, 1, 2, 3, 4, 5, 9, 9, 9});
  EXPECT_THAT(IdsOf(match), ElementsAre(ids[0]));
  EXPECT_EQ(match.num_tail_tokens, 2);
  EXPECT_EQ(match.tail.id(), ids[1]);
  // All but the last of a page's tokens are a match inside it.
  EXPECT_EQ(Find(Iota(0, 7)).num_tail_tokens, 3);
  EXPECT_EQ(Find({9}).num_tail_tokens, 0);
}

TEST_F(PrefixTreeTest, TheMatchInsideAPageIsTheLongestAmongSiblings) {
  Store({1, 2, 9, 9});
  const std::vector<PageId> best = Store({1, 2, 3, 9});
  Store({1, 9, 9, 9});
  Store({1, 2, 4, 0});
  const PrefixMatch match = Find({1, 2, 3, 4, 5});
  EXPECT_EQ(match.num_tail_tokens, 3);
  EXPECT_EQ(match.tail.id(), best[0]);
}

TEST_F(PrefixTreeTest, AMatchMayCrossFromHeadToRest) {
  const Tokens all = Iota(0, 12);
  const std::vector<PageId> ids = Store(all);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    const auto head = std::span(all).first(cut);
    EXPECT_EQ(IdsOf(tree_.Find("", {}, {head, std::span(all).subspan(cut)})),
              ids);
  }
}

TEST_F(PrefixTreeTest, SaltsSeparateWhatIsEqual) {
  const std::vector<PageId> a = Store(Iota(0, 8), "a");
  const std::vector<PageId> b = Store(Iota(0, 8), "b");
  EXPECT_EQ(IdsOf(Find(Iota(0, 8), "a")), a);
  EXPECT_EQ(IdsOf(Find(Iota(0, 8), "b")), b);
  EXPECT_THAT(IdsOf(Find(Iota(0, 8), "")), IsEmpty());
}

TEST_F(PrefixTreeTest, APageIsNotGivenWhileItIsFilled) {
  const Tokens tokens = Iota(0, 4);
  PageRef page = *pool_.Allocate();
  const auto inserted = tree_.Insert("", {}, tokens, page, PageState::kFilling);
  EXPECT_TRUE(inserted->is_new);
  PrefixMatch match = Find(Iota(0, 6));
  EXPECT_THAT(match.pages, IsEmpty());
  EXPECT_TRUE(match.is_filling);
  // A prompt that diverges within the page does not wait for it; a prefix of
  // the page does.
  EXPECT_FALSE(Find({0, 1, 9, 9}).is_filling);
  EXPECT_TRUE(Find({0, 1}).is_filling);
  tree_.MarkReady(inserted->cursor);
  EXPECT_THAT(IdsOf(Find(Iota(0, 6))), ElementsAre(page.id()));
  EXPECT_FALSE(Find(Iota(0, 6)).is_filling);
}

// In their order those that are being filled come before it, or after.
TEST_F(PrefixTreeTest, AFillingSiblingHidesNoReadyOne) {
  const auto fill = [&](const Tokens& tokens) {
    tree_.Insert("", {}, tokens, *pool_.Allocate(), PageState::kFilling);
  };
  fill({1, 2, 3, 4});
  fill({1, 2, 3, 5});
  EXPECT_TRUE(Find({1, 2, 3}).is_filling);
  const std::vector<PageId> after = Store({1, 2, 3, 6});
  fill({1, 2, 5, 0});
  fill({1, 2, 7, 0});
  const PrefixMatch match = Find({1, 2, 3});
  EXPECT_FALSE(match.is_filling);
  EXPECT_EQ(match.num_tail_tokens, 3);
  EXPECT_EQ(match.tail.id(), after[0]);
  const PrefixMatch past_filling = Find({1, 2, 8});
  EXPECT_EQ(past_filling.num_tail_tokens, 2);
  EXPECT_EQ(past_filling.tail.id(), after[0]);
  // A shorter ready match does not keep it from waiting.
  EXPECT_TRUE(Find({1, 2, 7}).is_filling);
}

TEST_F(PrefixTreeTest, WhatIsNotFilledLeavesWithAllBehindIt) {
  PageRef first = *pool_.Allocate();
  PageRef second = *pool_.Allocate();
  const auto at = tree_.Insert("", {}, Iota(0, 4), first, PageState::kFilling);
  tree_.Insert("", at->cursor, Iota(4, 4), second, PageState::kFilling);
  tree_.RemoveFilling(at->cursor);
  EXPECT_EQ(tree_.num_pages(), 0);
  EXPECT_FALSE(Find(Iota(0, 8)).is_filling);
  // Its cursor is stale from now on, and harmless.
  tree_.MarkReady(at->cursor);
  EXPECT_EQ(tree_.Insert("", at->cursor, Iota(4, 4), second, PageState::kReady),
            std::nullopt);
}

TEST_F(PrefixTreeTest, TheFirstPageOfEqualTokensStays) {
  const std::vector<PageId> ids = Store(Iota(0, 4));
  PageRef other = *pool_.Allocate();
  const auto inserted =
      tree_.Insert("", {}, Iota(0, 4), other, PageState::kReady);
  EXPECT_FALSE(inserted->is_new);
  EXPECT_EQ(IdsOf(Find(Iota(0, 4))), ids);
  EXPECT_EQ(pool_.ref_count(other.id()), 1);
}

TEST_F(PrefixTreeTest, AReadyPageReplacesOneBeingFilled) {
  PageRef filling = *pool_.Allocate();
  PageRef ready = *pool_.Allocate();
  tree_.Insert("", {}, Iota(0, 4), filling, PageState::kFilling);
  tree_.Insert("", {}, Iota(0, 4), ready, PageState::kReady);
  EXPECT_THAT(IdsOf(Find(Iota(0, 4))), ElementsAre(ready.id()));
  EXPECT_EQ(pool_.ref_count(filling.id()), 1);
}

TEST_F(PrefixTreeTest, ThePoolTakesTheLeastRecentlyUsedLeafBack) {
  const std::vector<PageId> a = Store(Iota(0, 8));
  const std::vector<PageId> b = Store(Iota(50, 8));
  const std::vector<PageId> c = Store(Iota(90, 16));
  EXPECT_EQ(pool_.num_free(), 0);
  EXPECT_EQ(pool_.num_available(), 8);
  Find(Iota(0, 4));  // the first page of a, not the second
  std::vector<PageRef> taken;
  const auto take = [&] {
    taken.push_back(*pool_.Allocate());
    return taken.back().id();
  };
  EXPECT_EQ(take(), a[1]);
  EXPECT_EQ(take(), b[1]);
  EXPECT_EQ(take(), b[0]);
  EXPECT_EQ(take(), c[3]);
  EXPECT_EQ(take(), c[2]);
  EXPECT_EQ(take(), c[1]);
  EXPECT_EQ(take(), c[0]);
  EXPECT_EQ(take(), a[0]);
  EXPECT_FALSE(pool_.Allocate().ok());
}

TEST_F(PrefixTreeTest, PagesInUseAreNotTakenBack) {
  Store(Iota(0, 16));
  const std::vector<PageId> b = Store(Iota(50, 16));
  const PrefixMatch used = Find(Iota(0, 16));
  EXPECT_EQ(pool_.num_available(), 4);
  std::vector<PageRef> taken;
  for (int i = 0; i < 4; ++i) taken.push_back(*pool_.Allocate());
  EXPECT_FALSE(pool_.Allocate().ok());
  EXPECT_EQ(IdsOf(Find(Iota(0, 16))), IdsOf(used));
  EXPECT_THAT(IdsOf(Find(Iota(50, 16))), IsEmpty());
}

// A sequence computed its own copy of page 0, and holds page 1 after the
// tree's.
TEST_F(PrefixTreeTest, AnIdlePageBeforeOneInUseIsAvailable) {
  Store(Iota(0, 4));
  PageRef second = *pool_.Allocate();
  tree_.Insert("", Find(Iota(0, 4)).end, Iota(4, 4), second, PageState::kReady);
  EXPECT_EQ(pool_.num_available(), 7);
  std::vector<PageRef> taken;
  for (int i = 0; i < 7; ++i) taken.push_back(*pool_.Allocate());
  EXPECT_EQ(tree_.num_pages(), 0);
  EXPECT_EQ(pool_.ref_count(second.id()), 1);
}

TEST_F(PrefixTreeTest, SaltsWithoutPagesLeaveNothing) {
  for (int i = 0; i < 1000; ++i) {
    Store(Iota(0, 4), std::to_string(i));
    EXPECT_TRUE(tree_.ReclaimPage());
  }
  EXPECT_EQ(tree_.num_pages(), 0);
  EXPECT_EQ(pool_.num_free(), 8);
}

// Every operation against a map from paths to contents. A page's content is
// what its tokens and all before them, and the salt, hash to; free pages are
// poisoned.
class PrefixModel {
 public:
  PrefixModel(uint64_t seed, int page_size, int num_pages)
      : random_(seed),
        page_size_(page_size),
        pool_(num_pages, page_size),
        tree_(&pool_),
        contents_(num_pages * page_size) {}

  void Step() {
    const int op = Below(12);
    if (op < 4 || sequences_.empty()) {
      Start();
    } else if (op < 8) {
      Feed(sequences_[Below(sequences_.size())]);
    } else if (op < 10) {
      const int at = Below(sequences_.size());
      Finish(sequences_[at], op == 8);
      sequences_.erase(sequences_.begin() + at);
    } else if (op == 10) {
      tree_.ReclaimPage();
    } else if (Below(100) == 0) {
      tree_.Clear();
    }
    PoisonFree();
    Validate();
  }

  int64_t num_hits() const { return num_hits_; }
  int64_t num_tail_hits() const { return num_tail_hits_; }
  int64_t num_evicted() const { return tree_.num_evicted(); }
  int64_t num_full() const { return num_full_; }

 private:
  struct Sequence {
    Sequence(PagePool* pool, std::string its_salt, Tokens its_tokens)
        : table(pool),
          salt(std::move(its_salt)),
          tokens(std::move(its_tokens)) {}
    PageTable table;
    std::string salt;
    Tokens tokens;  // that it will have
    PrefixTree::Cursor end;
    int num_announced = 0;  // pages
    std::vector<PrefixTree::Cursor> filling;
  };

  int Below(int64_t bound) { return static_cast<int>(random_() % bound); }

  uint64_t HashUpTo(const Sequence& sequence, int position) const {
    uint64_t hash = std::hash<std::string>()(sequence.salt) | 1;
    for (int i = 0; i <= position; ++i) {
      hash = (hash ^ sequence.tokens[i]) * 0x9E3779B97F4A7C15u + 1;
    }
    return hash;
  }

  uint64_t& Slot(const PageTable& table, int position) {
    return contents_[table.pages()[position / page_size_].id().value *
                         page_size_ +
                     position % page_size_];
  }

  void CheckContents(const Sequence& sequence) {
    for (int i = 0; i < sequence.table.num_tokens(); ++i) {
      ASSERT_EQ(Slot(sequence.table, i), HashUpTo(sequence, i));
    }
  }

  // Tokens of few kinds, often those of another sequence to some point.
  Tokens AnyTokens() {
    Tokens tokens;
    if (!sequences_.empty() && Below(2) == 0) {
      tokens = sequences_[Below(sequences_.size())].tokens;
      tokens.resize(Below(tokens.size() + 1));
    }
    const int count = 1 + Below(6 * page_size_);
    while (static_cast<int>(tokens.size()) < count) tokens.push_back(Below(2));
    return tokens;
  }

  void Start() {
    sequences_.emplace_back(&pool_, Below(4) == 0 ? "salt" : "", AnyTokens());
    Sequence& sequence = sequences_.back();
    const TokenPath path = {sequence.tokens};
    PrefixMatch match = tree_.Find(sequence.salt, {}, path);
    num_hits_ += match.pages.size();
    sequence.num_announced = static_cast<int>(match.pages.size());
    sequence.end = match.end;
    sequence.table.AdoptPages(std::move(match.pages));
    if (match.tail) {
      std::vector<PageCopy> copies;
      if (sequence.table.AppendCopy(match.tail, match.num_tail_tokens, &copies)
              .ok()) {
        ++num_tail_hits_;
        ASSERT_EQ(copies.size(), 1u);
        ASSERT_NE(copies[0].from, copies[0].to);
        std::copy_n(contents_.begin() + copies[0].from.value * page_size_,
                    copies[0].num_tokens,
                    contents_.begin() + copies[0].to.value * page_size_);
      }
    }
    CheckContents(sequence);
  }

  void Feed(Sequence& sequence) {
    for (const PrefixTree::Cursor& page : sequence.filling) {
      tree_.MarkReady(page);  // the last step was answered
    }
    sequence.filling.clear();
    const int from = sequence.table.num_tokens();
    const int count =
        std::min<int>(Below(2 * page_size_), sequence.tokens.size() - from);
    std::vector<PageCopy> copies;
    if (!sequence.table.Append(count, &copies).ok()) {
      ++num_full_;
      ASSERT_GT(NumPages(from + count, page_size_) -
                    std::ssize(sequence.table.pages()),
                pool_.num_available());
      return;
    }
    ASSERT_THAT(copies, IsEmpty());
    for (int i = from; i < from + count; ++i) {
      Slot(sequence.table, i) = HashUpTo(sequence, i);
    }
    Announce(sequence, PageState::kFilling);
    CheckContents(sequence);
  }

  void Announce(Sequence& sequence, PageState state) {
    const int num_full = sequence.table.num_tokens() / page_size_;
    for (; sequence.num_announced < num_full; ++sequence.num_announced) {
      const auto inserted = tree_.Insert(
          sequence.salt, sequence.end,
          std::span(sequence.tokens)
              .subspan(sequence.num_announced * page_size_, page_size_),
          sequence.table.pages()[sequence.num_announced], state);
      if (!inserted) return;
      sequence.end = inserted->cursor;
      if (inserted->is_new && state == PageState::kFilling) {
        sequence.filling.push_back(inserted->cursor);
      }
    }
  }

  void Finish(Sequence& sequence, bool failed) {
    for (const PrefixTree::Cursor& page : sequence.filling) {
      if (failed) {
        tree_.RemoveFilling(page);
      } else {
        tree_.MarkReady(page);
      }
    }
  }

  void PoisonFree() {
    for (int page = 0; page < pool_.num_pages(); ++page) {
      if (pool_.ref_count(PageId{page}) > 0) continue;
      std::fill_n(contents_.begin() + page * page_size_, page_size_, 0);
    }
  }

  void Validate() {
    std::vector<const PageTable*> tables;
    for (const Sequence& sequence : sequences_) {
      tables.push_back(&sequence.table);
    }
    const absl::Status status = ValidatePages(pool_, tables, {}, tree_.Pages());
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  std::mt19937_64 random_;
  const int page_size_;
  PagePool pool_;
  PrefixTree tree_;
  std::vector<uint64_t> contents_;  // [num_pages, page_size]
  std::vector<Sequence> sequences_;
  int64_t num_hits_ = 0;
  int64_t num_tail_hits_ = 0;
  int64_t num_full_ = 0;
};

TEST(PrefixModelTest, EveryPageHoldsWhatItsPathSays) {
  int64_t num_hits = 0;
  int64_t num_tail_hits = 0;
  int64_t num_evicted = 0;
  int64_t num_full = 0;
  for (int world = 0; world < 100; ++world) {
    const int page_size = std::array{1, 2, 3, 4, 16}[world % 5];
    PrefixModel model(world, page_size, 5 + world / 5 * 3);
    for (int i = 0; i < 1000; ++i) {
      model.Step();
      if (HasFatalFailure()) FAIL() << "world " << world << ", step " << i;
    }
    num_hits += model.num_hits();
    num_tail_hits += model.num_tail_hits();
    num_evicted += model.num_evicted();
    num_full += model.num_full();
  }
  EXPECT_GT(num_hits, 1000);
  EXPECT_GT(num_tail_hits, 1000);
  EXPECT_GT(num_evicted, 1000);
  EXPECT_GT(num_full, 1000);
}

}  // namespace
}  // namespace espalier
