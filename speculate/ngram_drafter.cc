#include "speculate/ngram_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"

namespace espalier {
namespace {

// The hash is keyed. With a known hash, a prompt could be chosen whose n-grams
// all collide, so that each would be compared with all others.
uint64_t HashOfNgram(const CowArray<TokenId>& tokens, int begin, int end) {
  uint64_t hash = 0;
  for (int i = begin; i < end; ++i) {
    hash = HashOf(hash ^ static_cast<uint32_t>(tokens[i]));
  }
  return hash;
}

bool IsSameNgram(const CowArray<TokenId>& tokens, int end, int other, int n) {
  for (int i = 1; i <= n; ++i) {
    if (tokens[end - i] != tokens[other - i]) return false;
  }
  return true;
}

}  // namespace

size_t NgramDrafter::Table::SlotOf(const CowArray<TokenId>& tokens,
                                   int end) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = HashOfNgram(tokens, end - n_, end) & mask;
  while (slots_[slot] != 0 && !IsSameNgram(tokens, slots_[slot], end, n_)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void NgramDrafter::Table::Grow(const CowArray<TokenId>& tokens) {
  const CowArray<int32_t> old = slots_;
  slots_.Assign(old.size() == 0 ? 64 : 2 * old.size(), 0);
  for (size_t i = 0; i < old.size(); ++i) {
    if (old[i] != 0) slots_.Mutable(SlotOf(tokens, old[i])) = old[i];
  }
}

int NgramDrafter::Table::Find(const CowArray<TokenId>& tokens, int end) const {
  if (slots_.size() == 0 || end < n_) return 0;
  return slots_[SlotOf(tokens, end)];
}

void NgramDrafter::Table::Put(const CowArray<TokenId>& tokens, int end) {
  if (end < n_) return;
  if (2 * (num_used_ + 1) > slots_.size()) Grow(tokens);
  int32_t& slot = slots_.Mutable(SlotOf(tokens, end));
  if (slot == 0) ++num_used_;
  slot = end;
}

size_t NgramDrafter::Table::MaxProbes(const CowArray<TokenId>& tokens) const {
  const size_t mask = slots_.size() - 1;
  size_t most = 0;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const int end = slots_[slot];
    if (end == 0) continue;
    const size_t first = HashOfNgram(tokens, end - n_, end) & mask;
    most = std::max(most, ((slot - first) & mask) + 1);
  }
  return most;
}

size_t NgramDrafter::MaxProbes() const {
  size_t most = 0;
  for (const Table& table : tables_) {
    most = std::max(most, table.MaxProbes(tokens_));
  }
  return most;
}

NgramDrafter::NgramDrafter(const NgramOptions& options) {
  CHECK(options.min_ngram >= 1 && options.min_ngram <= options.max_ngram)
      << "n-grams of " << options.min_ngram << " to " << options.max_ngram;
  for (int n = options.max_ngram; n >= options.min_ngram; --n) {
    tables_.emplace_back(n);
  }
}

void NgramDrafter::Append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    // An n-gram is recorded once a token follows it, so that the end of the
    // text never matches itself.
    const int end = static_cast<int>(tokens_.size());
    tokens_.PushBack(token);
    for (Table& table : tables_) table.Put(tokens_, end);
  }
}

void NgramDrafter::Draft(int max_tokens, std::vector<TokenId>* draft) const {
  draft->clear();
  const int end = static_cast<int>(tokens_.size());
  int next = 0;
  for (const Table& table : tables_) {
    next = table.Find(tokens_, end);
    if (next != 0) break;
  }
  if (next == 0) return;
  for (int i = 0; i < max_tokens; ++i) {
    const int place = next + i;
    draft->push_back(place < end ? tokens_[place] : (*draft)[place - end]);
  }
}

std::unique_ptr<Drafter> NgramDrafter::Fork() const {
  return std::make_unique<NgramDrafter>(*this);
}

}  // namespace espalier
