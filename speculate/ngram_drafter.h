// NgramDrafter: prompt lookup. It searches the most recent earlier occurrence
// of the last n tokens, for n from max_ngram down to min_ngram, and drafts the
// tokens that followed there. At the end of the text it continues into the
// draft itself, as an LZ77 copy does, so that a loop is drafted at full length.
//
//   ... the cat sat on the mat . the cat  ->  sat on the mat . the cat
//
// A hash table for each n maps n-grams to their last occurrence. It stores
// positions and compares the tokens there, so a hash collision costs only one
// more comparison. The hash is keyed (base/hash.h), so that input cannot force
// collisions. Memory: at most 68 bytes per token with max_ngram 4. Time:
// O(max_ngram) per appended token and per draft.
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
  // 1 <= min_ngram <= max_ngram. Longer matches are tried first, because they
  // predict better.
  int max_ngram = 4;
  int min_ngram = 1;
};

class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options = {});

  void Append(std::span<const TokenId> tokens) override;
  void Draft(int max_tokens, std::vector<TokenId>* draft) const override;
  std::unique_ptr<Drafter> Fork() const override;

  // Returns the longest probe sequence in the hash tables, over all n-grams in
  // them. For tests: O(tokens).
  size_t MaxProbes() const;

 private:
  // Hash table of the n-grams of one n. An n-gram is identified by its end: it
  // is tokens [end - n, end).
  class Table {
   public:
    explicit Table(int n) : n_(n) {}

    int n() const { return n_; }
    // Returns the last recorded end of the n-gram that ends at `end`, or 0.
    int Find(const CowArray<TokenId>& tokens, int end) const;
    // Records `end` as the last end of its n-gram.
    void Put(const CowArray<TokenId>& tokens, int end);
    size_t MaxProbes(const CowArray<TokenId>& tokens) const;

   private:
    // Returns the slot of the n-gram, or the empty slot to insert it.
    size_t SlotOf(const CowArray<TokenId>& tokens, int end) const;
    void Grow(const CowArray<TokenId>& tokens);

    int n_;
    // Open addressing, linear probing; 0 is empty, since no n-gram ends at 0.
    // The size is a power of two, at most half full.
    CowArray<int32_t> slots_;
    size_t num_used_ = 0;
  };

  CowArray<TokenId> tokens_;
  std::vector<Table> tables_;  // by n, longest first
};

}  // namespace espalier
