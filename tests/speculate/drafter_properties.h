// Property tests of every drafter from history.
#pragma once

#include <rapidcheck.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "speculate/drafter.h"

namespace espalier::testing {

inline std::vector<TokenId> DraftOf(const Drafter& drafter, int max_tokens) {
  std::vector<TokenId> draft = {-1};  // left by an earlier step
  drafter.Draft(max_tokens, &draft);
  return draft;
}

// A text over few tokens, so that much of it repeats; often with a part of it
// once more.
inline std::vector<TokenId> RepetitiveText(int max_length) {
  const auto num_kinds = *rc::gen::inRange<TokenId>(1, 5);
  const int length = *rc::gen::inRange(0, max_length + 1);
  std::vector<TokenId> text;
  while (static_cast<int>(text.size()) < length) {
    const int num_tokens = static_cast<int>(text.size());
    if (num_tokens > 0 && *rc::gen::inRange(0, 4) == 0) {
      const int begin = *rc::gen::inRange(0, num_tokens);
      const int count = *rc::gen::inRange(1, 9);
      for (int i = 0; i < count; ++i) text.push_back(text[begin + i]);
    } else {
      text.push_back(*rc::gen::inRange<TokenId>(0, num_kinds));
    }
  }
  return text;
}

// That a drafter drafts what `twin` says of the same text and number of tokens,
// whether tokens came one by one or many at once, and in every fork, whatever
// its relatives were appended since.
template <typename Twin>
void CheckAgainstTwin(std::unique_ptr<Drafter> drafter, const Twin& twin) {
  std::vector<std::pair<std::unique_ptr<Drafter>, std::vector<TokenId>>> all;
  all.emplace_back(std::move(drafter), std::vector<TokenId>());
  const int num_changes = *rc::gen::inRange(1, 8);
  for (int change = 0; change < num_changes; ++change) {
    const auto which = *rc::gen::inRange<size_t>(0, all.size());
    if (*rc::gen::inRange(0, 3) == 0) {
      std::unique_ptr<Drafter> fork = all[which].first->Fork();
      std::vector<TokenId> text = all[which].second;
      all.emplace_back(std::move(fork), std::move(text));
      continue;
    }
    const std::vector<TokenId> tokens = RepetitiveText(12);
    all[which].first->Append(tokens);
    std::vector<TokenId>& text = all[which].second;
    text.insert(text.end(), tokens.begin(), tokens.end());
    const int max_tokens = *rc::gen::inRange(0, 12);
    for (const auto& [relative, its_text] : all) {
      RC_ASSERT(DraftOf(*relative, max_tokens) == twin(its_text, max_tokens));
    }
  }
}

}  // namespace espalier::testing
