#include "constrain/item_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "tests/constrain/token_lists.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using List = std::vector<TokenId>;

bool BeginsWith(const List& list, const List& prefix) {
  return list.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), list.begin());
}

List Followed(List list, TokenId token) {
  list.push_back(token);
  return list;
}

// Says which tokens may come, from a look at each item.
class Oracle {
 public:
  Oracle(const Lists& items, const Lists& excluded, const Lists& prefixes,
         size_t min_length, List end_ids)
      : end_ids_(std::move(end_ids)) {
    for (const List& item : items) {
      const bool is_excluded =
          std::ranges::find(excluded, item) != excluded.end() ||
          std::ranges::any_of(prefixes, [&](const List& prefix) {
            return BeginsWith(item, prefix);
          });
      if (item.empty() || is_excluded) continue;
      const bool has_end_id =
          std::ranges::find(end_ids_, item.back()) != end_ids_.end();
      if (item.size() - (has_end_id ? 1 : 0) >= min_length) items_.insert(item);
    }
  }

  bool has(const List& list) const { return items_.contains(list); }
  bool ends(const List& list, int room) const {
    return Longer(list, room).empty();
  }
  bool accepts(const List& list, int room) const {
    return has(list) && (end_ids_.empty() || ends(list, room));
  }
  std::set<TokenId> Legal(const List& list, int room) const {
    std::set<TokenId> legal;
    for (const List* item : Longer(list, room)) {
      legal.insert((*item)[list.size()]);
    }
    if (has(list) && !legal.empty()) {
      legal.insert(end_ids_.begin(), end_ids_.end());
    }
    return legal;
  }
  // True if the token continues an item, so that it is not its end.
  bool IsContinued(const List& list, TokenId token, int room) const {
    return std::ranges::any_of(Longer(list, room), [&](const List* item) {
      return (*item)[list.size()] == token;
    });
  }
  const std::set<List>& items() const { return items_; }

 private:
  std::vector<const List*> Longer(const List& list, int room) const {
    std::vector<const List*> longer;
    for (const List& item : items_) {
      if (item.size() > list.size() && BeginsWith(item, list) &&
          std::ssize(item) <= std::ssize(list) + room) {
        longer.push_back(&item);
      }
    }
    return longer;
  }

  List end_ids_;
  std::set<List> items_;
};

// Compares all that may come after `list`, which leads to `state`.
void ExpectAsBy(const Oracle& oracle, const ItemConstraint& constraint,
                const List& list, Constraint::State state, int room,
                std::set<List>* found) {
  if (!list.empty()) {
    ASSERT_EQ(constraint.ends(state, room), oracle.ends(list, room));
    ASSERT_EQ(constraint.accepts(state, room), oracle.accepts(list, room));
    if (constraint.accepts(state, room)) found->insert(list);
  }
  const Constraint::Legal legal = constraint.LegalTokens(state, room);
  ASSERT_EQ(legal.error, nullptr);
  ASSERT_THAT(legal.tokens, ElementsAreArray(oracle.Legal(list, room)));
  // Never a dead end.
  ASSERT_TRUE(!legal.tokens.empty() || list.empty() || oracle.has(list));
  int num_last = 0;
  for (const TokenId token : legal.tokens) {
    const Constraint::State next = constraint.Advance(state, token);
    ASSERT_NE(next, Constraint::kNone);
    if (oracle.IsContinued(list, token, room)) {
      num_last += oracle.ends(Followed(list, token), room - 1) ? 1 : 0;
      ExpectAsBy(oracle, constraint, Followed(list, token), next, room - 1,
                 found);
      continue;
    }
    ++num_last;
    ASSERT_TRUE(constraint.accepts(next, room - 1));
    ASSERT_TRUE(constraint.ends(next, room - 1));
    ASSERT_THAT(constraint.LegalTokens(next, room - 1).tokens, IsEmpty());
    found->insert(list);
  }
  ASSERT_EQ(legal.num_last, num_last);
}

TEST(ItemConstraintTest, AllowsJustWhatMayComeOfRandomItems) {
  std::mt19937 random(2);
  for (int round = 0; round < 400; ++round) {
    const int num_tokens = 2 + static_cast<int>(random() % 4);
    const Lists items =
        RandomLists(random, 1 + random() % 40, 1 + random() % 5, num_tokens);
    Lists excluded;
    if (random() % 2 == 0) {
      excluded = RandomLists(random, random() % 9, 4, num_tokens + 1);
      for (const List& item : items) {
        if (random() % 4 == 0) excluded.push_back(item);
      }
    }
    Lists prefixes;
    if (random() % 2 == 0) {
      prefixes = RandomLists(random, random() % 4, 3, num_tokens + 1);
      std::erase_if(prefixes, [](const List& list) { return list.empty(); });
    }
    const int min_length = random() % 3 == 0 ? random() % 4 : 0;
    List end_ids;
    if (random() % 2 == 0) end_ids = {num_tokens, num_tokens + 3};
    // One that may also end an item, few of them or most.
    Lists with_ends = items;
    const int few = 1 + round % 8;
    for (List& item : with_ends) {
      if (end_ids.empty() || random() % few != 0) continue;
      item.push_back(end_ids[0]);
      if (random() % 4 == 0) excluded.push_back(item);
    }
    const ItemConstraint constraint(
        std::make_shared<const ItemCatalogue>(ListsOf(with_ends)),
        {.end_ids = end_ids,
         .excluded = ListsOf(excluded),
         .excluded_prefixes = ListsOf(prefixes),
         .min_length = min_length});
    const Oracle oracle(with_ends, excluded, prefixes, min_length, end_ids);
    size_t shortest = 0;
    for (const List& item : oracle.items()) {
      shortest = shortest == 0 ? item.size() : std::min(shortest, item.size());
    }
    EXPECT_EQ(constraint.MinRoom(),
              shortest == 0 ? -1 : static_cast<int>(shortest));
    for (const int room : {1, 2, 3, 4, 5, 6, 7, 100}) {
      std::set<List> found;
      ExpectAsBy(oracle, constraint, {}, constraint.start(), room, &found);
      if (::testing::Test::HasFatalFailure()) return;
      std::set<List> fitting;
      for (const List& item : oracle.items()) {
        if (std::ssize(item) <= room) fitting.insert(item);
      }
      EXPECT_EQ(found, fitting);
    }
  }
}

TEST(ItemConstraintTest, TokensOutsideTheListsLeadNowhere) {
  const ItemConstraint constraint(
      std::make_shared<const ItemCatalogue>(ListsOf({{5}, {5, 7}, {6, 8}})),
      {.end_ids = {2}, .excluded = ListsOf({{6, 8}})});
  const Constraint::State five = constraint.Advance(constraint.start(), 5);
  EXPECT_EQ(constraint.Advance(constraint.start(), 6), Constraint::kNone);
  EXPECT_EQ(constraint.Advance(constraint.start(), 2), Constraint::kNone);
  EXPECT_EQ(constraint.Advance(five, 6), Constraint::kNone);
  const Constraint::State ended = constraint.Advance(five, 2);
  EXPECT_EQ(constraint.Advance(ended, 7), Constraint::kNone);
  EXPECT_EQ(constraint.Advance(ended, 2), Constraint::kNone);
}

// A catalogue of a million nodes keeps no lists where everything may come.
TEST(ItemConstraintTest, ListsAreSlicesWhereNothingIsLeftOut) {
  const auto items = std::make_shared<const ItemCatalogue>(
      ListsOf({{5, 7, 1}, {5, 8, 2}, {6, 8, 2}}));
  const ItemConstraint constraint(items, {.excluded = ListsOf({{5, 7, 1}})});
  const Constraint::State five = constraint.Advance(constraint.start(), 5);
  const Constraint::State six = constraint.Advance(constraint.start(), 6);
  EXPECT_EQ(constraint.LegalTokens(six, 2).tokens.data(),
            items->Next(six).data());
  EXPECT_THAT(constraint.LegalTokens(five, 2).tokens, ElementsAre(8));
  // All of the start's tokens may come, too.
  EXPECT_EQ(constraint.LegalTokens(constraint.start(), 3).tokens.data(),
            items->Next(constraint.start()).data());
}

TEST(ItemConstraintTest, ListsThatAreNoSlicesAreTriedWithinAnEffort) {
  const ItemConstraint constraint(std::make_shared<const ItemCatalogue>(
      ListsOf({{1, 2}, {1, 3, 4}, {2, 5, 6, 7}})));
  const auto start = constraint.start();
  EXPECT_TRUE(constraint.IsListed(start, 4));  // a slice: all items fit
  EXPECT_TRUE(constraint.TryList(start, 4, 0));
  EXPECT_FALSE(constraint.IsListed(start, 3));
  EXPECT_FALSE(constraint.TryList(start, 3, 3));
  EXPECT_FALSE(constraint.IsListed(start, 3));
  EXPECT_TRUE(constraint.TryList(start, 3, 1000));
  EXPECT_TRUE(constraint.IsListed(start, 3));
  EXPECT_FALSE(constraint.TryList(start, 3, 3));
  EXPECT_FALSE(constraint.IsListed(start, 2));
}

TEST(ItemConstraintTest, ListsHaveALimit) {
  Lists lists;
  for (TokenId token = 0; token < 100; ++token) {
    for (TokenId next = 0; next < 100; ++next) lists.push_back({token, next});
  }
  Lists excluded;
  for (TokenId token = 0; token < 100; ++token) excluded.push_back({token, 3});
  const ItemConstraint constraint(
      std::make_shared<const ItemCatalogue>(ListsOf(lists)),
      {.excluded = ListsOf(excluded), .max_list_bytes = 10'000});
  int num_lists = 0;
  const absl::Status* error = nullptr;
  for (TokenId token = 0; token < 100 && error == nullptr; ++token) {
    const Constraint::State state =
        constraint.Advance(constraint.start(), token);
    error = constraint.LegalTokens(state, 1).error;
    num_lists += error == nullptr ? 1 : 0;
  }
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(num_lists, 15);
  EXPECT_LT(num_lists, 26);
}

}  // namespace
}  // namespace espalier
