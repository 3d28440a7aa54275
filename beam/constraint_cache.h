// ConstraintCache: compiles the constraints of the requests of one model, and
// keeps the latest. Requests with equal languages and ending ids share one
// constraint, with the lists of legal tokens that it has so far. An error is
// kept, too, so a language that cannot be compiled costs its work once.
//
// A language is compiled on the thread of the caller, in up to two seconds:
// making its automaton, and counting the tokens that its texts still need, take
// at most a budget of steps each (constrain/compile_budget.h).
//
// Thread safety: any thread may call. Different languages are compiled at the
// same time; callers with equal ones wait for the first of them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
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
  // Keeps constraints of up to `max_bytes` where a new one is added, and the
  // latest whatever its size.
  //   tokenizer  null: requests have no constraints
  //   max_list_bytes  of each, as for TextConstraint::Make
  ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer,
                  ModelDescription model,
                  int64_t max_bytes = int64_t{256} << 20,
                  int64_t max_list_bytes = int64_t{256} << 20);

  // Returns the constraint of `request`, which ValidateRequest has passed; null
  // if it has none. One whose lists of tokens exceed their memory is compiled
  // anew.
  // Errors: kInvalidArgument naming the kind of language and what is wrong: a
  // construct that is not supported, a limit, a language that the vocabulary
  // cannot spell, or that there is no tokenizer; or naming max_new_tokens, if
  // it has no room for any text, and the least that has.
  absl::StatusOr<std::shared_ptr<const Constraint>> Get(const Request& request);

  int64_t num_compiled() const;  // so far, with errors

 private:
  // All that a constraint depends on.
  struct Key {
    std::string language;  // kind and contents
    std::vector<TokenId> end_ids;
    bool opens_text = true;
    bool has_marks = false;  // those of calls of tools are part of texts

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Vocabulary {
    std::shared_ptr<const TokenVocabulary> tokens;
    int64_t num_bytes = 0;
  };
  struct Compiled {
    std::shared_ptr<const TextConstraint> constraint = nullptr;
    // Its own, or of constraints with equal end_ids; null: that of all.
    Vocabulary vocabulary;
  };
  struct Entry {
    explicit Entry(Key of) : key(std::move(of)) {}

    const Key key;
    std::mutex compiling;  // held while its language is compiled
    // Unset until then. Guarded by mutex_.
    std::optional<absl::StatusOr<Compiled>> compiled;
  };
  using Entries = std::list<std::shared_ptr<Entry>>;

  absl::StatusOr<Compiled> Compile(const ConstraintParams& params,
                                   const Key& key);
  std::shared_ptr<const TokenVocabulary> CommonVocabulary();
  // Returns the vocabulary in which no end id of the key adds text, and marks
  // do if it has marks; without tokens if that is `common`.
  Vocabulary OwnVocabulary(const Key& key, const TokenVocabulary& common);
  // Returns the entry of `key`, which is now the first.
  std::shared_ptr<Entry> FindOrAdd(const Key& key);
  void Keep(Entry* entry, absl::StatusOr<Compiled> compiled);
  // Removes and returns the oldest entries. The caller destroys them without
  // the lock: they may have hundreds of megabytes.
  Entries TakeOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ModelDescription model_;
  const int64_t max_bytes_;
  const int64_t max_list_bytes_;
  mutable std::mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);  // the latest first
  // Made for the first constraint.
  std::shared_ptr<const TokenVocabulary> vocabulary_ ABSL_GUARDED_BY(mutex_);
  int64_t num_compiled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
