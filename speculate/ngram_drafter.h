// NgramDrafter: prompt lookup. It takes the last n tokens of the text, n from
// max_ngram down to min_ngram, finds where they occurred last before, and
// drafts what followed there. After the end of the text it goes on with the
// draft itself, as an LZ77 copy does, so that a loop is drafted at full length.
//
//   ... the cat sat on the mat . the cat  ->  sat on the mat . the cat
//
// A hash table for each n has the n-grams of the text by where they occurred
// last. It holds places only and compares the tokens there, so that what is
// drafted is exact: a hash that two n-grams share costs a look. Nobody can
// choose tokens whose n-grams share one, as the hash is keyed (base/hash.h). At
// most 68 bytes a token of memory at max_ngram 4; O(max_ngram) for a token and
// for a draft.
//
// Source: Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculate/cow_array.h"
#include "speculate/drafter.h"

namespace espalier {

struct NgramOptions {
  // 1 <= min_ngram <= max_ngram. The longest first: a long match is likelier to
  // go on as it did.
  int max_ngram = 4;
  int min_ngram = 1;
};

class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options = {});

  void Append(std::span<const TokenId> tokens) override;
  void Draft(int max_tokens, std::vector<TokenId>* draft) const override;
  std::unique_ptr<Drafter> Fork() const override;

  // The most slots of a hash table that the search for an n-gram goes through,
  // of all that were put into it. A figure for tests: O(tokens).
  size_t MaxProbes() const;

 private:
  // The n-grams of one n. An n-gram is named by its end, the place of the token
  // that follows it: it is tokens [end - n, end).
  class Table {
   public:
    explicit Table(int n) : n_(n) {}

    int n() const { return n_; }
    // Where the n-gram that ends at `end` was put last, or 0.
    int Find(const CowArray<TokenId>& tokens, int end) const;
    // Puts it at `end` now.
    void Put(const CowArray<TokenId>& tokens, int end);
    size_t MaxProbes(const CowArray<TokenId>& tokens) const;

   private:
    // The slot that has the n-gram, or the empty one where it belongs.
    size_t SlotOf(const CowArray<TokenId>& tokens, int end) const;
    void Grow(const CowArray<TokenId>& tokens);

    int n_;
    // Open addressing, linear probing; 0 is empty, as no n-gram ends at 0. A
    // power of two, at most half full.
    CowArray<int32_t> slots_;
    size_t num_used_ = 0;
  };

  CowArray<TokenId> tokens_;
  std::vector<Table> tables_;  // by n, longest first
};

}  // namespace espalier
