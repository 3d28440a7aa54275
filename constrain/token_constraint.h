// TokenConstraint: a language of texts for one vocabulary: which tokens may
// follow a text so that a text of the language can still be completed from
// tokens.
//
//   ASSIGN_OR_RETURN(const auto constraint,
//                    TokenConstraint::Make(automaton, vocabulary));
//   State state = constraint.start();
//   constraint.LegalTokens(state, &tokens);
//   state = constraint.Advance(state, token);
//   constraint.accepts(state);  // the text may end here
//   constraint.min_tokens(state);  // fewest tokens to where it may end
//
// If the vocabulary lacks a byte, as a SentencePiece model without byte
// fallback does, some states of the automaton may not lead to a text that the
// tokens can spell. They count as illegal.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/constraint_tables.h"
#include "base/ids.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/token_mask.h"
#include "constrain/token_suffixes.h"
#include "constrain/token_trie.h"
#include "constrain/tokens_to_end.h"

namespace espalier {

// The tokens of a tokenizer, by the bytes that they add to a text.
//
// A tokenizer may drop a space at the start of a text, so the first token has
// bytes of its own there: "\u2581the" adds "the". A token that is a dropped
// space alone, "\u2581", is legal as the first one although it adds nothing,
// because tokenizers spell "{" as "\u2581", "{".
struct TokenVocabulary {
  explicit TokenVocabulary(std::span<const std::string> bytes)
      : suffixes(bytes), inside(bytes) {}
  // `first_bytes` has as many tokens. `drops_all`: the tokens after a dropped
  // space are first tokens, too.
  TokenVocabulary(std::span<const std::string> bytes,
                  std::span<const std::string> first_bytes, bool drops_all)
      : suffixes(bytes),
        inside(bytes),
        first(TokenTrie(first_bytes)),
        drops_all_spaces(drops_all) {}

  int64_t num_bytes() const {
    return suffixes.num_bytes() + inside.num_bytes() +
           (first ? first->num_bytes() : 0);
  }

  TokenSuffixes suffixes;
  TokenTrie inside;
  std::optional<TokenTrie> first;  // unset: as `inside`
  bool drops_all_spaces = false;
};

class TokenConstraint {
 public:
  // A state of the automaton, or one of two more: the start of a text, and the
  // state after a dropped space there.
  using State = ByteAutomaton::State;
  static constexpr State kNone = ByteAutomaton::kNone;
  static constexpr int32_t kNever = TokensToEnd::kNever;

  // Takes at most limits.max_steps to count tokens to the end of a text
  // (constrain/tokens_to_end.h).
  //   opens_text  false: the text continues another one, so that no space of
  //               its first token is dropped
  // Errors: kInvalidArgument if no text can be spelt; or if the vocabulary
  // lacks a byte, and the steps do not suffice.
  static absl::StatusOr<TokenConstraint> Make(
      std::shared_ptr<const ByteAutomaton> automaton,
      std::shared_ptr<const TokenVocabulary> vocabulary,
      const CompileLimits& limits = {}, bool opens_text = true);

  State start() const {
    return opens_text_ ? opening() : State{ByteAutomaton::kStart};
  }
  int num_states() const { return automaton_->num_states() + 2; }

  // Returns the state after `token`; kNone if it is illegal.
  // REQUIRES: `state` is a state; `token` is in [0, vocab_size).
  State Advance(State state, TokenId token) const;
  // True if the text may end here.
  bool accepts(State state) const {
    return automaton_->accepts(AutomatonState(state));
  }
  // True if the text may end here and no token may follow.
  bool ends(State state) const { return more_.more[state] == kNever; }
  // Return the fewest tokens from the state to where a text may end: 0 if it
  // may end here; and at least one, kNever if none may follow.
  // REQUIRES: `state` follows legal tokens.
  int32_t min_tokens(State state) const {
    return accepts(state) ? 0 : more_.more[state];
  }
  int32_t min_more_tokens(State state) const { return more_.more[state]; }
  // True if these are the fewest. Otherwise they may be more than necessary,
  // but from each state a token leads to one with fewer, or to an end.
  bool has_exact_counts() const { return more_.is_exact; }

  // Replaces `*tokens` with the legal tokens after which at most `max_tokens`
  // can complete a text, ascending. Returns the number of them after which the
  // text must end, because none may follow, or at least more than `max_tokens`.
  //   needs  null, or receives the different values of min_more_tokens() after
  //          the legal tokens, ascending, without kNever. The result depends on
  //          `max_tokens` only by the number of needs that are not above it
  int LegalTokens(State state, int32_t max_tokens, std::vector<TokenId>* tokens,
                  std::vector<int32_t>* needs = nullptr) const;
  // As above, and adds the tokens to `*mask`.
  int LegalTokens(State state, int32_t max_tokens, TokenMask* mask,
                  std::vector<int32_t>* needs = nullptr) const;
  // As the first, if any number of tokens may follow.
  int LegalTokens(State state, std::vector<TokenId>* tokens) const {
    return LegalTokens(state, kNever - 1, tokens);
  }
  // As Constraint::AppendForcedBytes. No byte counts from which no tokens can
  // complete a text.
  void AppendForcedBytes(State state, size_t max_bytes,
                         std::string* bytes) const;
  // Returns the bytes that `token` adds to a text after `state`.
  // REQUIRES: as Advance.
  std::string_view BytesOf(State state, TokenId token) const {
    return TrieAt(state).BytesOf(token);
  }

  // Returns an upper bound of what LegalTokens returns, but for 0 more tokens,
  // after which none may follow in any case.
  int64_t MaxLastTokens() const;

  // Returns all of it as arrays, without end ids: states, and what tokens add.
  // Valid as long as the automaton and the vocabulary, and this.
  ConstraintTables tables() const;

  const ByteAutomaton& automaton() const { return *automaton_; }
  int vocab_size() const { return vocabulary_->inside.vocab_size(); }

 private:
  TokenConstraint(std::shared_ptr<const ByteAutomaton> automaton,
                  std::shared_ptr<const TokenVocabulary> vocabulary,
                  bool opens_text)
      : automaton_(std::move(automaton)),
        vocabulary_(std::move(vocabulary)),
        opens_text_(opens_text) {
    for (TokenId token = 0; token < vocab_size(); ++token) {
      if (IsDroppedSpace(token)) dropped_spaces_.push_back(token);
    }
  }

  State opening() const { return automaton_->num_states(); }
  State after_space() const { return opening() + 1; }
  State AutomatonState(State state) const {
    return state >= opening() ? ByteAutomaton::kStart : state;
  }
  const TokenTrie& TrieAt(State state) const {
    const bool is_first = state == opening() || (state == after_space() &&
                                                 vocabulary_->drops_all_spaces);
    return is_first && vocabulary_->first ? *vocabulary_->first
                                          : vocabulary_->inside;
  }
  bool IsDroppedSpace(TokenId token) const {
    return vocabulary_->first && vocabulary_->first->BytesOf(token).empty() &&
           !vocabulary_->inside.BytesOf(token).empty();
  }
  bool IsLive(State state) const { return min_tokens(state) != kNever; }
  // As TokenTrie::AddLegal, with dropped spaces.
  template <typename End>
  void AddLegal(State state, const End& end, TokenMask* mask) const;
  // Sets more_ of the states before and after a dropped space.
  void CountFromOpening();

  std::shared_ptr<const ByteAutomaton> automaton_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  bool opens_text_;
  std::vector<TokenId> dropped_spaces_;  // ascending
  TokensToEnd more_;                     // [num_states()]
};

}  // namespace espalier
