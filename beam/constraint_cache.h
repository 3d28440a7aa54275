// ConstraintCache: compiles the constraints of the requests of one model, and
// keeps the latest. Requests with equal languages and ending ids share one
// constraint, with the lists of legal tokens that it has so far.
//
// Compiling takes at most a budget of steps (constrain/compile_budget.h), on
// the thread of the caller.
//
// Thread safety: any thread may call. Two threads may compile one language at a
// time; the later result is kept.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "constrain/constraint.h"
#include "constrain/text_constraint.h"
#include "constrain/token_constraint.h"
#include "request/request.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class ConstraintCache {
 public:
  // Keeps constraints of up to `max_bytes`, and the latest whatever its size.
  //   tokenizer  null: requests have no constraints
  ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer,
                  ModelDescription model,
                  int64_t max_bytes = int64_t{256} << 20);

  // Returns the constraint of `request`, which ValidateRequest has passed; null
  // if it has none.
  // Errors: kInvalidArgument naming the kind of language and what is wrong: a
  // construct that is not supported, a limit, a language that the vocabulary
  // cannot spell, or that there is no tokenizer.
  absl::StatusOr<std::shared_ptr<const Constraint>> Get(const Request& request);

  int64_t num_compiled() const;  // so far

 private:
  // All that a constraint depends on.
  struct Key {
    std::string language;  // kind and contents
    std::vector<TokenId> end_ids;
    bool opens_text = true;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const TextConstraint> constraint;
  };

  absl::StatusOr<std::shared_ptr<const TextConstraint>> Compile(
      const ConstraintParams& params, const Key& key);
  std::shared_ptr<const TokenVocabulary> Vocabulary();
  // Moves the entry of `key` to the front and returns its constraint, or null.
  std::shared_ptr<const TextConstraint> Find(const Key& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ModelDescription model_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the latest first
  // Made for the first constraint.
  std::shared_ptr<const TokenVocabulary> vocabulary_ ABSL_GUARDED_BY(mutex_);
  int64_t num_compiled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
