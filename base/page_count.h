// Counts of pages of key/value memory. REQUIRES: page_size >= 1.
#pragma once

#include <cstdint>

namespace espalier {

// Returns the pages of a table of `num_tokens` tokens: ceil(num_tokens /
// page_size).
constexpr int64_t NumPages(int64_t num_tokens, int page_size) {
  return (num_tokens + page_size - 1) / page_size;
}

// Returns the maximum number of distinct pages in `num_beams` tables of at most
// num_tokens tokens each that share the first num_shared_tokens. Full shared
// pages count once, others per beam. REQUIRES: num_shared_tokens <= num_tokens.
constexpr int64_t WorstCasePages(int64_t num_shared_tokens, int64_t num_tokens,
                                 int64_t num_beams, int page_size) {
  const int64_t num_shared = num_shared_tokens / page_size;
  return num_shared +
         num_beams * (NumPages(num_tokens, page_size) - num_shared);
}

}  // namespace espalier
