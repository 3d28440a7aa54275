// TokenListSet: the different lists of tokens that a constraint has made. Equal
// lists are one, which stays where it is as long as the set.
//
// Thread safety: any thread may call.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/ids.h"
#include "constrain/token_mask.h"

namespace espalier {

struct TokenList {
  std::vector<TokenId> tokens;  // ascending
  int num_last = 0;             // number of them after which none may follow
};

class TokenListSet {
 public:
  // Returns the list of these tokens, with `num_last`.
  // REQUIRES: `mask` is normalized.
  const TokenList* Keep(TokenMask mask, int num_last);
  // Bytes of the lists.
  int64_t num_bytes() const;

 private:
  struct Entry {
    TokenList list;
    // Empty for a short list. Comparing them is faster than comparing tokens.
    std::vector<uint64_t> words;
  };
  using Entries = std::unordered_multimap<uint64_t, std::unique_ptr<Entry>>;

  const TokenList* Find(uint64_t hash, const TokenMask& mask,
                        int num_last) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable std::mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // by the hash of the tokens
  int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
