#include "beam/constraint_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/shared_list.h"
#include "base/status.h"
#include "beam/strategy/selection_options.h"
#include "constrain/choice_language.h"
#include "constrain/json_schema.h"
#include "constrain/regex_language.h"
#include "request/decoder_prompt.h"
#include "request/text_begin.h"
#include "request/token_bytes.h"

namespace espalier {
namespace {

// A few megabytes: a request's own lists are as long.
constexpr int kMaxEntries = 256;

std::string_view KindOf(const ConstraintParams& params) {
  if (params.regex) return "constraint.regex";
  return params.choice ? "constraint.choice" : "constraint.json_schema";
}

// Returns the contents of a language, each one once.
std::string LanguageOf(const ConstraintParams& params) {
  if (params.regex) return Concat("r", *params.regex);
  if (params.json_schema) {
    return Concat(params.has_spaces ? "j" : "J", *params.json_schema);
  }
  std::string language = "c";
  for (const std::string& text : *params.choice) {
    language += Concat(text.size(), ":", text);
  }
  return language;
}

// True if the output is a text of its own, so that the spaces that the
// tokenizer drops at the start of a text fall.
bool OpensText(const Tokenizer& tokenizer, const ModelDescription& model,
               const Request& request) {
  return TextBegin(tokenizer, model, request).drops_space();
}

absl::StatusOr<ByteAutomaton> CompileLanguage(const ConstraintParams& params) {
  if (params.regex) return CompileRegex(*params.regex);
  if (params.choice) return CompileChoice(params.choice->items());
  return CompileJsonSchema(*params.json_schema,
                           {.has_spaces = params.has_spaces});
}

}  // namespace

ConstraintCache::ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer,
                                 ModelDescription model, int64_t max_bytes)
    : tokenizer_(std::move(tokenizer)),
      model_(std::move(model)),
      max_bytes_(max_bytes) {}

absl::StatusOr<std::shared_ptr<const Constraint>> ConstraintCache::Get(
    const Request& request) {
  if (!request.params.constraint) return nullptr;
  const ConstraintParams& params = *request.params.constraint;
  if (tokenizer_ == nullptr) {
    return InvalidField(
        "`constraint` must be unset without a tokenizer, which makes the text "
        "that it is of",
        Got(KindOf(params).substr(std::string_view("constraint.").size())));
  }
  const SharedList<TokenId> end_ids = FinishingTokenIds(request.params);
  const Key key = {.language = LanguageOf(params),
                   .end_ids = end_ids.items(),
                   .opens_text = OpensText(*tokenizer_, model_, request)};
  {
    const std::lock_guard lock(mutex_);
    if (auto found = Find(key)) return found;
  }
  absl::StatusOr<std::shared_ptr<const TextConstraint>> compiled =
      Compile(params, key);
  if (!compiled.ok()) {
    return InvalidField(FieldName{KindOf(params)}, ": ",
                        Message(compiled.status()));
  }
  const std::lock_guard lock(mutex_);
  ++num_compiled_;
  entries_.push_front({key, *compiled});
  DropOldest();
  return *std::move(compiled);
}

std::shared_ptr<const TextConstraint> ConstraintCache::Find(const Key& key) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->constraint;
}

void ConstraintCache::DropOldest() {
  int64_t num_bytes = 0;
  int num_kept = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    num_bytes += entry->constraint->num_bytes() +
                 static_cast<int64_t>(entry->key.language.size());
    if (num_kept > 0 && (num_bytes > max_bytes_ || num_kept == kMaxEntries)) {
      entries_.erase(entry, entries_.end());
      return;
    }
    ++num_kept;
  }
}

// An ordinary token that ends a sequence is no part of a text.
absl::StatusOr<std::shared_ptr<const TextConstraint>> ConstraintCache::Compile(
    const ConstraintParams& params, const Key& key) {
  ASSIGN_OR_RETURN(ByteAutomaton automaton, CompileLanguage(params));
  std::shared_ptr<const TokenVocabulary> vocabulary = Vocabulary();
  const bool end_adds_text =
      std::ranges::any_of(key.end_ids, [&](TokenId token) {
        return token < vocabulary->inside.vocab_size() &&
               !vocabulary->inside.BytesOf(token).empty();
      });
  if (end_adds_text) {
    vocabulary = std::make_shared<const TokenVocabulary>(
        TokenBytesOf(*tokenizer_, key.end_ids, model_.vocab_size));
  }
  ASSIGN_OR_RETURN(
      TokenConstraint texts,
      TokenConstraint::Make(
          std::make_shared<const ByteAutomaton>(std::move(automaton)),
          std::move(vocabulary), {}, key.opens_text));
  return TextConstraint::Make(std::move(texts), key.end_ids);
}

std::shared_ptr<const TokenVocabulary> ConstraintCache::Vocabulary() {
  {
    const std::lock_guard lock(mutex_);
    if (vocabulary_ != nullptr) return vocabulary_;
  }
  auto made = std::make_shared<const TokenVocabulary>(
      TokenBytesOf(*tokenizer_, {}, model_.vocab_size));
  const std::lock_guard lock(mutex_);
  if (vocabulary_ == nullptr) vocabulary_ = std::move(made);
  return vocabulary_;
}

int64_t ConstraintCache::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

}  // namespace espalier
