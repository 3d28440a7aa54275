// TextConstraint: a language of texts as the constraint of a request: tokens
// that spell a text, and an id that ends the sequence where the text may end.
// The id is not needed where the text must end: because no longer text exists,
// or because none fits into the room (constraint.h).
//
//   [0-9]{1,2}    "4", EOS    "42"
//   [0-9]+        with room for 3 tokens: "4", EOS    "42", EOS    "427"
//
// The tokens of a state are listed when the state is first asked for; threads
// that ask at the same time may each list them, and one list is kept. States
// with equal lists share them: most states within a long string do. Near the
// end of the room a state has lists of its own, one for each number of tokens
// that texts after one of its tokens may need.
//
// Thread safety: any thread may read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "constrain/language_constraint.h"
#include "constrain/token_constraint.h"
#include "constrain/token_list_set.h"

namespace espalier {

class TextConstraint final : public LanguageConstraint {
 public:
  //   texts    with a vocabulary in which no end id adds text
  //   end_ids  ids that end a sequence, ascending, each once
  //   max_list_bytes  as of max_list_bytes()
  // Errors: kInvalidArgument if the empty text alone is in the language, and no
  // id ends it.
  static absl::StatusOr<std::shared_ptr<const TextConstraint>> Make(
      TokenConstraint texts, std::vector<TokenId> end_ids,
      int64_t max_list_bytes = int64_t{256} << 20);

  State start() const override { return texts_.start(); }
  State Advance(State state, TokenId token) const override;
  Legal LegalTokens(State state, int32_t room) const override;
  bool accepts(State state, int32_t room) const override {
    return ends(state, room) && (state == ended() || texts_.accepts(state));
  }
  bool ends(State state, int32_t room) const override {
    return state == ended() || texts_.min_more_tokens(state) > room;
  }
  int64_t MaxLegal(int64_t num_sequences) const override {
    return num_sequences * texts_.vocab_size();
  }
  int64_t MaxLast(int64_t num_sequences) const override {
    return num_sequences * max_last_;
  }

  std::optional<ConstraintTables> tables() const override;
  void AppendForcedBytes(State state, size_t max_bytes,
                         std::string* bytes) const override {
    if (state != ended()) texts_.AppendForcedBytes(state, max_bytes, bytes);
  }
  std::string_view BytesOf(State state, TokenId token) const override {
    if (state == ended() || token < 0 || token >= texts_.vocab_size())
      return {};
    return texts_.BytesOf(state, token);
  }

  int64_t max_list_bytes() const override { return max_list_bytes_; }
  bool is_full() const override;

  // Returns the room that a sequence of the language needs at least, with the
  // end id of an empty text; TokenConstraint::kNever if there is none. Without
  // texts().has_exact_counts() fewer tokens may do.
  //   is_empty_text_legal  false: no end id may come first
  int32_t MinRoom(bool is_empty_text_legal) const override {
    return is_empty_text_legal && !end_ids_.empty() && texts_.accepts(start())
               ? 1
               : texts_.min_more_tokens(start());
  }

  const TokenConstraint& texts() const { return texts_; }
  // Bytes of tables and of the lists so far, without the vocabulary, which
  // constraints share.
  int64_t num_bytes() const override;

 private:
  // The numbers of tokens that texts after one of a state's tokens may need:
  // with room for each one, after the token, more tokens follow, or fewer of
  // them are the last. Ascending.
  using Needs = std::vector<int32_t>;

  TextConstraint(TokenConstraint texts, std::vector<TokenId> end_ids,
                 int64_t max_list_bytes);
  // After an end id.
  State ended() const { return texts_.num_states(); }
  bool IsEndId(TokenId token) const;
  // Makes what is kept of a state: its needs, and its tokens with room for more
  // than these, which it returns.
  const TokenList* ListOf(State state) const;
  // Returns the tokens with less room, making the list once for all numbers
  // between two needs.
  const TokenList* NearList(State state, int32_t room) const;
  // Returns the list of the tokens of a state; `needs` as for
  // TokenConstraint::LegalTokens.
  const TokenList* MakeList(State state, int32_t room,
                            std::vector<int32_t>* needs) const;
  // Returns what is kept and equal to the argument, which may be itself.
  const Needs* KeepNeeds(std::vector<int32_t> needs) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds to the bytes of what is kept beside the lists.
  void AddBytes(size_t num_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TokenConstraint texts_;
  const std::vector<TokenId> end_ids_;
  const int64_t max_last_;
  const int64_t max_list_bytes_;
  // [num_states()]  null until it is asked for; owned by lists_.
  const std::unique_ptr<std::atomic<const TokenList*>[]> list_of_;
  // [num_states()]  set before list_of_; owned by needs_.
  const std::unique_ptr<const Needs*[]> needs_of_;
  mutable std::mutex mutex_;
  mutable std::set<Needs> needs_ ABSL_GUARDED_BY(mutex_);
  // By state and by the number of its needs that there is room for.
  mutable std::map<std::pair<State, int64_t>, const TokenList*> near_
      ABSL_GUARDED_BY(mutex_);
  mutable TokenListSet lists_;
  // Bytes kept beside the lists.
  mutable int64_t num_kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
