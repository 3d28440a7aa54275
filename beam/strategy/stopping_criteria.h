// StoppingCriteria: which tokens may follow a live sequence, and which of them
// end it, and as what:
//
//   allowed sequences   one of them is complete ("stop", or "eos" by an EOS
//                       id); nothing else ends a sequence then, but it also
//                       goes on if that is the beginning of another
//   EOS id              "eos"; "stop" if the text ends at a stop string that
//                       is only complete as nothing follows
//   stop id             "stop"
//   stop string         "stop": the token completes one in the text
//
// Length is not its matter: max_new_tokens ends what none of these did.
//
// The state of a sequence is its Progress, a value that a beam forks by
// copying.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/shared_list.h"
#include "beam/strategy/allowed_sequence_trie.h"
#include "beam/strategy/request_text.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/text_stream.h"

namespace espalier {

class StoppingCriteria {
 public:
  struct Progress {
    AllowedSequenceTrie::Node allowed = AllowedSequenceTrie::kRoot;
    std::optional<TextStream> text;  // if there are stop strings
  };
  struct Outcome {
    std::optional<FinishReason> hit;  // how it ends; unset: it does not
    bool goes_on = true;              // may be so besides
  };

  // `params` as ValidateParams leaves them. The others are of these params; a
  // text there must be if there are stop strings.
  explicit StoppingCriteria(
      const GenerationParams& params,
      std::shared_ptr<const AllowedSequenceTrie> allowed = nullptr,
      std::shared_ptr<const RequestText> text = nullptr);
  // A strategy's parts point to it.
  StoppingCriteria(const StoppingCriteria&) = delete;
  StoppingCriteria& operator=(const StoppingCriteria&) = delete;

  // Before the first token.
  Progress Begin() const;

  // What `token` makes of a sequence, whose progress is taken on.
  // REQUIRES: it may follow.
  Outcome Feed(TokenId token, Progress* progress) const {
    return IsIdle(token) ? Outcome() : FeedAny(token, progress);
  }

  // Whether `token` ends no sequence, and Feed would do nothing more.
  bool IsIdle(TokenId token) const {
    return is_by_token() && !std::ranges::binary_search(token_ids_, token);
  }

  // As what a sequence ends that nothing ends but its length: "stop" where the
  // text that it ends with, the bytes of a character that never came, completes
  // a stop string.
  FinishReason AtFullLength(const Progress& progress) const {
    return AtEnd(progress, FinishReason::kLength);
  }
  // The same of one that `reason` ends.
  FinishReason AtEnd(const Progress& progress, FinishReason reason) const;

  // The tokens that alone may follow; unset: all.
  std::optional<std::span<const TokenId>> Next(const Progress& progress) const;
  // Of these, all and those that nothing may follow.
  int num_next(const Progress& progress) const;
  int num_leaf_children(const Progress& progress) const;

  // Whether all tokens may follow, and a token alone decides whether its
  // sequence ends: if it is one of token_ids().
  bool is_by_token() const { return allowed_ == nullptr && !has_stops(); }
  bool restricts() const { return allowed_ != nullptr; }

  // EOS and stop ids, ascending, each once.
  std::span<const TokenId> token_ids() const { return token_ids_; }

 private:
  bool has_stops() const { return text_ != nullptr; }
  // Feed, of any kind of token.
  Outcome FeedAny(TokenId token, Progress* progress) const;
  Outcome FeedAllowed(TokenId token, Progress* progress) const;

  const SharedList<TokenId> shared_token_ids_;
  const std::span<const TokenId> token_ids_;  // its elements, for each step
  const std::shared_ptr<const AllowedSequenceTrie> allowed_;  // or null
  const std::shared_ptr<const RequestText> text_;  // null: no stop strings
  const SharedList<TokenId> eos_token_ids_;        // ascending
};

// Whether there is a text to find the request's stop strings in, which
// ValidateParams has found right by themselves; `tokenizer` may be null.
// Errors: kInvalidArgument naming the field, if there is none.
absl::Status CheckStops(const GenerationParams& params,
                        const Tokenizer* tokenizer);

}  // namespace espalier
