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
//
// If the vocabulary lacks a byte, as a SentencePiece model without byte
// fallback does, some states of the automaton may not lead to a text that the
// tokens can spell. They count as illegal.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/token_trie.h"

namespace espalier {

// The tokens of a tokenizer, by the bytes that they add to a text.
struct TokenVocabulary {
  explicit TokenVocabulary(std::vector<std::string> bytes)
      : inside(std::move(bytes)) {}
  TokenVocabulary(std::vector<std::string> bytes,
                  std::vector<std::string> first_bytes)
      : inside(std::move(bytes)), first(TokenTrie(std::move(first_bytes))) {}

  TokenTrie inside;
  // Bytes of a text's first token, if they differ: the space that begins
  // "\u2581the" may be dropped there. As many tokens as `inside`.
  std::optional<TokenTrie> first;
};

class TokenConstraint {
 public:
  // A state of the automaton, or its number of states for the start of a text.
  using State = ByteAutomaton::State;
  static constexpr State kNone = ByteAutomaton::kNone;

  // Takes states * vocabulary steps if the vocabulary lacks a byte, else none.
  // Errors: kInvalidArgument if no text can be spelt, or if `limits` is
  // exceeded.
  static absl::StatusOr<TokenConstraint> Make(
      std::shared_ptr<const ByteAutomaton> automaton,
      std::shared_ptr<const TokenVocabulary> vocabulary,
      const CompileLimits& limits = {});

  State start() const { return automaton_->num_states(); }

  // Returns the state after `token`; kNone if it is illegal.
  // REQUIRES: `state` is a state; `token` is in [0, vocab_size).
  State Advance(State state, TokenId token) const;
  // True if the text may end here.
  bool accepts(State state) const {
    return automaton_->accepts(AutomatonState(state));
  }
  // Replaces `*tokens` with the legal tokens, ascending.
  void LegalTokens(State state, std::vector<TokenId>* tokens) const;

  const ByteAutomaton& automaton() const { return *automaton_; }
  int vocab_size() const { return vocabulary_->inside.vocab_size(); }

 private:
  TokenConstraint(std::shared_ptr<const ByteAutomaton> automaton,
                  std::shared_ptr<const TokenVocabulary> vocabulary)
      : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)) {}

  State AutomatonState(State state) const {
    return state == start() ? ByteAutomaton::kStart : state;
  }
  const TokenTrie& TrieAt(State state) const {
    return state == start() && vocabulary_->first ? *vocabulary_->first
                                                  : vocabulary_->inside;
  }
  bool IsLive(State state) const { return live_.empty() || live_[state] != 0; }
  absl::Status FindLiveStates(const CompileLimits& limits);

  std::shared_ptr<const ByteAutomaton> automaton_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  // [num_states + 1]  1 if tokens lead from the state to an accepting one.
  // Empty: all states are live.
  std::vector<uint8_t> live_;
};

}  // namespace espalier
