// ConstraintCache: compiles the constraints of the requests of one model, and
// keeps the latest. Requests with equal languages and ending ids share one
// constraint, with the lists of legal tokens that it has so far. An error is
// kept, too, so a language that cannot be compiled costs its work once.
//
//   ASSIGN_OR_RETURN(auto language, cache.Find(request));  // some microseconds
//   if (!language->is_compiled()) ...  // perhaps on another thread:
//   cache.Compile(language.get());     // up to two seconds
//
// Making a language's automaton, and counting the tokens that its texts
// still need, take at most a budget of steps each (constrain/compile_budget.h).
//
// Thread safety: any thread may call. Different languages are compiled at the
// same time; callers with equal ones wait for the first of them.
#pragma once

#include <atomic>
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
#include "constrain/language_constraint.h"
#include "constrain/token_constraint.h"
#include "request/request.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// A language of a cache, with its constraint or error once it is compiled.
class ConstraintLanguage {
 public:
  // All that a constraint depends on.
  struct Key {
    std::string language;  // kind and contents
    std::vector<TokenId> end_ids;
    bool opens_text = true;
    bool has_marks = false;        // those of calls of tools are part of texts
    std::string start_token = {};  // a special one that is part of texts
    uint64_t hash = 0;             // the language's, to tell most apart

    friend bool operator==(const Key& a, const Key& b) {
      return a.hash == b.hash && a.opens_text == b.opens_text &&
             a.has_marks == b.has_marks && a.end_ids == b.end_ids &&
             a.start_token == b.start_token && a.language == b.language;
    }
  };

  ConstraintLanguage(Key key, ConstraintParams params, std::string start_after)
      : key_(std::move(key)),
        params_(std::move(params)),
        start_after_(std::move(start_after)) {}

  bool is_compiled() const { return is_compiled_; }

 private:
  friend class ConstraintCache;
  struct Vocabulary {
    std::shared_ptr<const TokenVocabulary> tokens;
    int64_t num_bytes = 0;
  };
  struct Compiled {
    std::shared_ptr<const LanguageConstraint> constraint = nullptr;
    // Its own, or of constraints with equal end_ids; null: that of all.
    Vocabulary vocabulary;
  };

  const Key key_;
  std::mutex compiling_;  // held while it is compiled
  ConstraintParams params_ ABSL_GUARDED_BY(compiling_);  // empty once it is
  const std::string start_after_;
  // Unset until is_compiled_, and constant from then on.
  std::optional<absl::StatusOr<Compiled>> compiled_;
  std::atomic<bool> is_compiled_ = false;
};

class ConstraintCache {
 public:
  // Keeps constraints of up to `max_bytes`, and the latest whatever its size.
  //   tokenizer  null: requests have no constraints
  //   max_list_bytes  of a request, as for TextConstraint::Make
  ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer,
                  ModelDescription model,
                  int64_t max_bytes = int64_t{256} << 20,
                  int64_t max_list_bytes = int64_t{256} << 20);

  // Returns the language of `request`, which ValidateRequest has passed; null
  // if it has no constraint, or items (beam/constrain_to_items.h). One that is
  // full (LanguageConstraint) is to be compiled anew.
  // Errors: kInvalidArgument naming `constraint`, if there is no tokenizer.
  absl::StatusOr<std::shared_ptr<ConstraintLanguage>> Find(
      const Request& request);

  // Returns the constraint of a language that Find returned; compiles it if
  // that was not done yet.
  // Errors: kInvalidArgument naming the kind of language and what is wrong: a
  // construct that is not supported, a limit, or a language that the vocabulary
  // cannot spell.
  absl::StatusOr<std::shared_ptr<const Constraint>> Compile(
      ConstraintLanguage* language);

  // Compile, for a request of that language. Errors: also kInvalidArgument
  // naming max_new_tokens, if it has no room for any text, and the least that
  // has.
  absl::StatusOr<std::shared_ptr<const Constraint>> CompileFor(
      const Request& request, ConstraintLanguage* language);

  // Returns the constraint of `request`; null if it has none. Errors: as Find
  // and CompileFor.
  absl::StatusOr<std::shared_ptr<const Constraint>> Get(const Request& request);

  int64_t num_compiled() const;  // so far, with errors

 private:
  using Key = ConstraintLanguage::Key;
  using Vocabulary = ConstraintLanguage::Vocabulary;
  using Compiled = ConstraintLanguage::Compiled;
  using Languages = std::list<std::shared_ptr<ConstraintLanguage>>;

  absl::StatusOr<Compiled> Make(const ConstraintParams& params,
                                const std::string& start_after, const Key& key);
  std::shared_ptr<const TokenVocabulary> CommonVocabulary();
  // Returns the vocabulary in which no end id of the key adds text, and marks
  // do if it has marks, and its start_token does; without tokens if that is
  // `common`.
  Vocabulary OwnVocabulary(const Key& key, const TokenVocabulary& common);
  // Returns the language of `key` if it is compiled and not full. It is now the
  // first.
  std::shared_ptr<ConstraintLanguage> FindCompiled(const Key& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the language of `key` that a caller has and that is not compiled.
  std::shared_ptr<ConstraintLanguage> FindUncompiled(const Key& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(ConstraintLanguage* language);
  // Drops the oldest beyond max_bytes_.
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes and returns the dropped ones that no request has any more. The
  // caller destroys them without the lock: they may have hundreds of megabytes.
  Languages TakeUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ModelDescription model_;
  const int64_t max_bytes_;
  const int64_t max_list_bytes_;
  mutable std::mutex mutex_;
  Languages compiled_ ABSL_GUARDED_BY(mutex_);  // the latest first
  // Languages that callers have.
  std::list<std::weak_ptr<ConstraintLanguage>> uncompiled_
      ABSL_GUARDED_BY(mutex_);
  // Not found any more, but a request had them when they were dropped. Kept so
  // that no request's end destroys one on the strand of its engine.
  Languages dropped_ ABSL_GUARDED_BY(mutex_);
  // Made for the first constraint.
  std::shared_ptr<const TokenVocabulary> vocabulary_ ABSL_GUARDED_BY(mutex_);
  int64_t num_compiled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace espalier
