// A page table that runs out of memory on the host is as it was, and so are its
// pool and the list of copies. Every allocation fails once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "pages/page_pool.h"
#include "pages/page_table.h"
#include "tests/replace_operator_new.h"

namespace {

// The allocation that fails, counted from 1; 0: none does.
int64_t failing_allocation = 0;

}  // namespace

void espalier::testing::OnAllocation() {
  if (failing_allocation > 0 && --failing_allocation == 0) {
    throw std::bad_alloc();
  }
}

namespace espalier {
namespace {

constexpr int kPageSize = 4;

// Holds pages exclusively, and releases them on demand.
class IdlePages : public PageReclaimer {
 public:
  IdlePages(PagePool* pool, int count) : pool_(pool) {
    for (int i = 0; i < count; ++i) {
      pages_.push_back(*pool->Allocate());
      pool->SetCached(pages_.back().id(), true);
    }
    pool->set_reclaimer(this);
  }
  ~IdlePages() override {
    while (ReclaimPage()) continue;
    pool_->set_reclaimer(nullptr);
  }
  bool ReclaimPage() override {
    if (pages_.empty()) return false;
    pool_->SetCached(pages_.back().id(), false);
    pages_.pop_back();
    return true;
  }

 private:
  PagePool* const pool_;
  std::vector<PageRef> pages_;
};

// Tables of one pool, and all that can be seen of them.
struct World {
  explicit World(int num_pages, int num_idle)
      : pool(num_pages, kPageSize), idle(&pool, num_idle), table(&pool) {}

  std::vector<int64_t> State() const {
    std::vector<int64_t> state = {pool.num_free(), pool.num_idle()};
    for (int page = 0; page < pool.num_pages(); ++page) {
      state.push_back(pool.ref_count(PageId{page}));
      state.push_back(pool.is_cached(PageId{page}) ? 1 : 0);
    }
    for (const PageTable* one : {&table, child ? &*child : &table}) {
      state.push_back(one->num_tokens());
      for (const PageRef& page : one->pages()) {
        state.push_back(page.id().value);
      }
    }
    for (const PageCopy& copy : copies) {
      state.insert(state.end(),
                   {copy.from.value, copy.to.value, copy.num_tokens});
    }
    return state;
  }

  PagePool pool;
  IdlePages idle;
  PageTable table;
  std::optional<PageTable> child;
  std::vector<PageCopy> copies;
};

// Has `call` fail at each of its allocations. Returns how many it makes.
int FailEach(const std::function<std::unique_ptr<World>()>& make,
             const std::function<void(World&)>& call) {
  for (int num_good = 0;; ++num_good) {
    const std::unique_ptr<World> world = make();
    const std::vector<int64_t> before = world->State();
    bool has_failed = false;
    failing_allocation = num_good + 1;
    try {
      call(*world);
    } catch (const std::bad_alloc&) {
      has_failed = true;
    }
    failing_allocation = 0;
    if (!has_failed) return num_good;
    EXPECT_EQ(world->State(), before) << "allocation " << num_good + 1;
    call(*world);  // as if nothing had happened
  }
}

// A table of six tokens, the last two of which a child shares.
std::unique_ptr<World> Shared(int num_pages, int num_idle) {
  auto world = std::make_unique<World>(num_pages, num_idle);
  EXPECT_TRUE(world->table.Append(6, &world->copies).ok());
  world->child.emplace(world->table.Fork(6));
  return world;
}

class PageTableOutOfMemoryTest : public ::testing::TestWithParam<int> {};

// Pages that are taken are free, or a cache's.
INSTANTIATE_TEST_SUITE_P(NumIdle, PageTableOutOfMemoryTest,
                         ::testing::Values(0, 18));

TEST_P(PageTableOutOfMemoryTest, AppendChangesAllOrNothing) {
  const auto empty = [] { return std::make_unique<World>(20, GetParam()); };
  EXPECT_GE(FailEach(empty,
                     [](World& world) {
                       EXPECT_TRUE(world.table.Append(9, &world.copies).ok());
                     }),
            1);
  const auto shared = [] { return Shared(20, GetParam()); };
  // Room for the page, and for the copy of the tail.
  EXPECT_GE(FailEach(shared,
                     [](World& world) {
                       EXPECT_TRUE(world.child->Append(7, &world.copies).ok());
                     }),
            2);
}

TEST_P(PageTableOutOfMemoryTest, AppendCopyChangesAllOrNothing) {
  const auto full = [] {
    auto world = Shared(20, GetParam());
    world->child->Truncate(4);
    return world;
  };
  EXPECT_GE(FailEach(full,
                     [](World& world) {
                       EXPECT_TRUE(world.child
                                       ->AppendCopy(world.table.pages()[1], 2,
                                                    &world.copies)
                                       .ok());
                     }),
            1);
}

TEST_P(PageTableOutOfMemoryTest, ForkHoldsNothingMore) {
  EXPECT_GE(FailEach([] { return Shared(20, GetParam()); },
                     [](World& world) {
                       EXPECT_EQ(world.table.Fork(5).num_tokens(), 5);
                     }),
            1);
}

// The error itself takes memory.
TEST(PageTableOutOfPagesTest, AnErrorThatCannotBeMadeChangesNothing) {
  EXPECT_GE(FailEach([] { return Shared(3, 1); },
                     [](World& world) {
                       EXPECT_FALSE(world.child->Append(9, &world.copies).ok());
                     }),
            1);
}

}  // namespace
}  // namespace espalier
