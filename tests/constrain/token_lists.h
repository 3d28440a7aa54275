// Lists of tokens for tests of catalogues.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/ids.h"
#include "constrain/item_catalogue.h"

namespace espalier {

using Lists = std::vector<std::vector<TokenId>>;

inline TokenLists ListsOf(const Lists& lists) {
  TokenLists made;
  for (const std::vector<TokenId>& list : lists) {
    made.tokens.insert(made.tokens.end(), list.begin(), list.end());
    made.EndList();
  }
  return made;
}

// Returns lists of at most `max_length` tokens below `num_tokens`; some are
// equal, and some begin others.
inline Lists RandomLists(std::mt19937& random, int count, int max_length,
                         int num_tokens) {
  Lists lists;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId> list;
    if (!lists.empty() && random() % 3 == 0) {
      list = lists[random() % lists.size()];
      list.resize(random() % (list.size() + 1));
    }
    const size_t length = random() % (max_length + 1);
    while (list.size() < length) {
      list.push_back(static_cast<TokenId>(random() % num_tokens));
    }
    lists.push_back(std::move(list));
  }
  return lists;
}

}  // namespace espalier
