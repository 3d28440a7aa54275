#include "speculate/suffix_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "speculate/suffix_automaton.h"
#include "tests/speculate/drafter_properties.h"

namespace espalier {
namespace {

using ::espalier::testing::CheckAgainstTwin;
using ::espalier::testing::DraftOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Text = std::vector<TokenId>;

// The counts of suffix_automaton.h for every substring by itself.
class SubstringCounts {
 public:
  explicit SubstringCounts(const Text& text) {
    for (const TokenId token : text) Append(token);
  }

  // Returns the number of occurrences of a substring. The empty one occurs
  // between all tokens, before and after.
  int NumOccurrences(const Text& substring) const {
    int count = 0;
    for (size_t i = 0; i + substring.size() <= text_.size(); ++i) {
      count += std::equal(substring.begin(), substring.end(),
                          text_.begin() + static_cast<ptrdiff_t>(i));
    }
    return count;
  }

  // Returns the most frequent next token; -1 if there was none.
  TokenId BestNext(const Text& substring) const {
    const auto found = nexts_.find(substring);
    if (found == nexts_.end()) return -1;
    const auto best = std::ranges::max_element(
        found->second, {}, [](const auto& next) { return next.second; });
    return best->first;
  }

  const Text& text() const { return text_; }

 private:
  // Counts `token` after every suffix, from the longest to the first that it
  // has followed before, and after suffixes of the same occurrences.
  void Append(TokenId token) {
    const int time = static_cast<int>(text_.size());
    int found_occurrences = -1;
    for (auto begin = text_.begin();; ++begin) {
      const Text suffix(begin, text_.end());
      const bool was_followed = nexts_[suffix].contains(token);
      if (found_occurrences < 0 && was_followed) {
        found_occurrences = NumOccurrences(suffix);
      } else if (found_occurrences >= 0 &&
                 found_occurrences != NumOccurrences(suffix)) {
        break;
      }
      auto& [count, last] = nexts_[suffix][token];
      ++count;
      last = time;
      if (begin == text_.end()) break;
    }
    text_.push_back(token);
  }

  using CountAndTime = std::pair<int, int>;  // compares as they say
  std::map<Text, std::map<TokenId, CountAndTime>> nexts_;
  Text text_;
};

Text SuffixTwin(const SuffixOptions& options, const Text& text,
                int max_tokens) {
  const SubstringCounts counts(text);
  Text suffix = text;
  while (!suffix.empty() && counts.NumOccurrences(suffix) < 2) {
    suffix.erase(suffix.begin());
  }
  const int length = static_cast<int>(suffix.size());
  if (length < options.min_match_length) return {};
  const int longest =
      std::max(1, static_cast<int>(options.max_spec_factor * length));
  Text draft;
  for (int i = 0; i < std::min(longest, max_tokens); ++i) {
    while (counts.BestNext(suffix) < 0) suffix.erase(suffix.begin());
    draft.push_back(counts.BestNext(suffix));
    suffix.push_back(draft.back());
  }
  return draft;
}

Text SuffixDraft(const Text& text, int max_tokens,
                 const SuffixOptions& options = {}) {
  SuffixDrafter drafter(options);
  drafter.Append(text);
  return DraftOf(drafter, max_tokens);
}

TEST(SuffixDrafterTest, LongerMatchesDraftMore) {
  const Text text = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int length = 1; length < 4; ++length) {
    Text repeated = text;
    repeated.insert(repeated.end(), text.begin(), text.begin() + length);
    const Text following(text.begin() + length, text.begin() + 2 * length);
    EXPECT_EQ(SuffixDraft(repeated, 8), following);
    EXPECT_EQ(SuffixDraft(repeated, 8, {.max_spec_factor = 0.5}).size(),
              std::max(1, length / 2));
    EXPECT_EQ(SuffixDraft(repeated, 8, {.min_match_length = 3}).empty(),
              length < 3);
  }
}

TEST(SuffixDrafterTest, WhatFollowedMostOftenIsDraftedAndOfEqualsTheLast) {
  // 1 is followed by 2, 2 and 3.
  EXPECT_THAT(SuffixDraft({1, 2, 7, 1, 2, 8, 1, 3, 9, 1}, 1), ElementsAre(2));
  EXPECT_THAT(SuffixDraft({1, 2, 7, 1, 3, 9, 1}, 1), ElementsAre(3));
}

TEST(SuffixDrafterTest, TheLongestMatchCountsHoweverLongItIs) {
  // After a run of 20 tokens comes 7, and more often 8 after its last ones.
  Text run(20);
  for (int i = 0; i < 20; ++i) run[i] = 100 + i;
  Text text = run;
  text.push_back(7);
  for (int i = 0; i < 3; ++i) {
    text.push_back(50 + i);
    text.insert(text.end(), run.end() - 8, run.end());
    text.push_back(8);
  }
  text.insert(text.end(), run.begin(), run.end());
  EXPECT_THAT(SuffixDraft(text, 1), ElementsAre(7));
}

TEST(SuffixDrafterTest, WithoutARepetitionThereIsNoDraft) {
  EXPECT_THAT(SuffixDraft({}, 5), IsEmpty());
  EXPECT_THAT(SuffixDraft({7}, 5), IsEmpty());
  EXPECT_THAT(SuffixDraft({1, 2, 3}, 5), IsEmpty());
  EXPECT_THAT(SuffixDraft({1, 1, 1}, 0), IsEmpty());
}

TEST(SuffixDrafterTest, ALoopIsDraftedBeyondTheEnd) {
  EXPECT_THAT(SuffixDraft(Text(9, 4), 6), ElementsAre(4, 4, 4, 4, 4, 4));
  EXPECT_THAT(SuffixDraft({1, 2, 3, 1, 2, 3, 1, 2, 3}, 6),
              ElementsAre(1, 2, 3, 1, 2, 3));
}

// A loop, which has as many suffixes as tokens, and a text with few
// repetitions: the automaton stays within its bounds of states and edges.
TEST(SuffixDrafterTest, LongTextsAreTakenInLinearTime) {
  std::mt19937 random(1);
  for (const TokenId num_kinds : {1, 2, 50'000}) {
    SuffixDrafter drafter;
    for (int i = 0; i < 100'000; ++i) {
      const auto token = static_cast<TokenId>(random() % num_kinds);
      drafter.Append({&token, 1});
    }
    EXPECT_LE(DraftOf(drafter, 5).size(), 5u);
  }
}

RC_GTEST_PROP(SuffixDrafterProperty, DraftsAreThoseOfCountingEverySubstring,
              ()) {
  SuffixOptions options;
  options.max_spec_factor = *rc::gen::element(0.3, 1.0, 2.5, 100.0);
  options.min_match_length = *rc::gen::inRange(1, 4);
  CheckAgainstTwin(std::make_unique<SuffixDrafter>(options),
                   [&](const Text& text, int max_tokens) {
                     return SuffixTwin(options, text, max_tokens);
                   });
}

// Tokens that are all different, so that the state after each is that of its
// number; the edges that lead there have the low bits of 0 in a hash that has
// no key, which multiplies a state and a token and folds the product.
std::vector<TokenId> TokensOfOneEdgeSlot(int count, int num_bits) {
  const uint64_t mask = (uint64_t{1} << num_bits) - 1;
  std::vector<TokenId> tokens;
  for (TokenId token = 1; std::ssize(tokens) < count; ++token) {
    const uint64_t state = tokens.size();
    for (;; ++token) {
      const uint64_t key = state << 32 | static_cast<uint32_t>(token);
      const uint64_t hash = (key ^ key >> 31) * 0x9e3779b97f4a7c15;
      if (((hash ^ hash >> 32) & mask) == 0) break;
    }
    tokens.push_back(token);
  }
  return tokens;
}

// With that hash the last would be compared with all others.
TEST(SuffixAutomatonTest, TokensCannotBeChosenToShareASlot) {
  SuffixAutomaton automaton;
  for (const TokenId token : TokensOfOneEdgeSlot(2'000, 13)) {
    automaton.Append(token);
  }
  EXPECT_LT(automaton.MaxProbes(), 500);
}

}  // namespace
}  // namespace espalier
