// TextConstraint: a language of texts as the constraint of a request: tokens
// that spell a text, and an id that ends the sequence where the text may end.
// A text that must end needs no such id.
//
//   [0-9]{1,2}    "4", EOS    "42"
//
// The tokens of a state are listed when the state is first asked for; threads
// that ask at the same time may each list them, and one list is kept. States
// with equal lists share them: most states within a long string do.
//
// Thread safety: any thread may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "constrain/constraint.h"
#include "constrain/token_constraint.h"

namespace espalier {

class TextConstraint final : public Constraint {
 public:
  //   texts    with a vocabulary in which no end id adds text
  //   end_ids  ids that end a sequence, ascending, each once
  //   max_list_bytes  lists that would take more exceed the memory
  // Errors: kInvalidArgument if the empty text alone is in the language, and no
  // id ends it.
  static absl::StatusOr<std::shared_ptr<const TextConstraint>> Make(
      TokenConstraint texts, std::vector<TokenId> end_ids,
      int64_t max_list_bytes = int64_t{256} << 20);

  State start() const override { return texts_.start(); }
  State Advance(State state, TokenId token) const override;
  Legal LegalTokens(State state) const override;
  bool accepts(State state) const override { return ends(state); }
  bool ends(State state) const override {
    return state == ended() || texts_.ends(state);
  }
  int64_t MaxLegal(int64_t num_sequences) const override {
    return num_sequences * texts_.vocab_size();
  }
  int64_t MaxLast(int64_t num_sequences) const override {
    return num_sequences * max_last_;
  }

  absl::Status CheckMemory() const override;

  const TokenConstraint& texts() const { return texts_; }
  // Bytes of tables and of the lists so far, without the vocabulary, which
  // constraints share.
  int64_t num_bytes() const;

 private:
  struct TokenList {
    std::vector<TokenId> tokens;
    int num_last = 0;
    bool exceeds_memory = false;
  };

  TextConstraint(TokenConstraint texts, std::vector<TokenId> end_ids,
                 int64_t max_list_bytes);
  // After an end id.
  State ended() const { return texts_.num_states(); }
  bool IsEndId(TokenId token) const;
  const TokenList* ListOf(State state) const;

  const TokenConstraint texts_;
  const std::vector<TokenId> end_ids_;
  const int64_t max_last_;
  const int64_t max_list_bytes_;
  // [num_states()]  null until it is asked for; owned by lists_.
  const std::unique_ptr<std::atomic<const TokenList*>[]> list_of_;
  mutable std::mutex mutex_;
  // By the hash of the tokens.
  mutable std::unordered_multimap<uint64_t, std::unique_ptr<const TokenList>>
      lists_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t num_list_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
