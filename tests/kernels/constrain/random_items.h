// Constraints of random catalogues, for tests of their masks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "base/constraint_tables.h"
#include "constrain/item_constraint.h"
#include "tests/constrain/token_lists.h"

namespace espalier::testing {

// Tokens of items are below `vocab_size - 2`, at the edges of words and tiles
// more often than by chance. Items may begin with others. The last two tokens
// are the end ids, if there are any; then some items end by one.
inline Lists RandomItems(int vocab_size, int count, int max_length,
                         bool has_end_ids, std::mt19937& random) {
  const int num_tokens = vocab_size - 2;
  Lists items = RandomLists(random, count, max_length, num_tokens);
  for (std::vector<TokenId>& item : items) {
    for (TokenId& token : item) {
      if (random() % 4 != 0) continue;
      const int edges[] = {0, 31, 32, 1023, 1024, num_tokens - 1};
      token = std::min(edges[random() % std::size(edges)], num_tokens - 1);
    }
    if (has_end_ids && random() % 8 == 0) item.push_back(vocab_size - 1);
  }
  // A first token with every second one after it, and a root of many.
  for (TokenId token = 0; token < num_tokens; token += 2) {
    items.push_back({num_tokens / 2, token});
    if (token % 3 == 0) items.push_back({token});
  }
  return items;
}

// Returns a constraint that may exclude items, and lengths.
inline std::shared_ptr<const ItemConstraint> RandomItemConstraint(
    int vocab_size, std::mt19937& random) {
  const bool has_end_ids = random() % 2 == 0;
  const Lists items = RandomItems(vocab_size, 1 + random() % 200,
                                  1 + random() % 6, has_end_ids, random);
  ItemOptions options;
  if (has_end_ids) options.end_ids = {vocab_size - 2, vocab_size - 1};
  const bool excludes = random() % 2 == 0;
  Lists excluded;
  Lists prefixes;
  for (const std::vector<TokenId>& item : items) {
    if (item.empty() || !excludes) continue;
    if (random() % 3 == 0) excluded.push_back(item);
    if (random() % 30 != 0) continue;
    prefixes.push_back(item);
    prefixes.back().resize(1 + random() % item.size());
  }
  options.excluded = ListsOf(excluded);
  options.excluded_prefixes = ListsOf(prefixes);
  if (random() % 3 == 0) options.min_length = random() % 4;
  return std::make_shared<const ItemConstraint>(
      std::make_shared<const ItemCatalogue>(ListsOf(items)), options);
}

// As tables() of a constraint has them that offers some.
inline ConstraintTables TablesOf(const ItemConstraint& constraint,
                                 int vocab_size) {
  return {.vocab_size = vocab_size, .items = constraint.item_tables()};
}

}  // namespace espalier::testing
