#include "beam/constraint_cache.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/hash.h"
#include "base/json_scan.h"
#include "base/shared_list.h"
#include "base/status.h"
#include "base/wording.h"
#include "beam/strategy/selection_options.h"
#include "constrain/choice_language.h"
#include "constrain/contained_words.h"
#include "constrain/gbnf_language.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/start_after.h"
#include "constrain/text_constraint.h"
#include "request/decoder_prompt.h"
#include "request/read_constraint.h"
#include "request/text_begin.h"
#include "request/token_bytes.h"
#include "request/tool_call_language.h"
#include "text/chat/tool_call_format.h"

namespace espalier {
namespace {

// Bounds the time of a search in the list, some microseconds.
constexpr int kMaxLanguages = 256;

// True if there is nothing but must_contain.
bool IsAnyText(const ConstraintParams& params) {
  return !params.regex && !params.grammar && !params.tool_calls &&
         !params.choice && !params.json_schema;
}

std::string_view KindOf(const ConstraintParams& params) {
  if (params.regex) return "constraint.regex";
  if (params.grammar) return "constraint.grammar";
  if (params.tool_calls) return "constraint.tool_calls";
  if (IsAnyText(params)) return "constraint.must_contain";
  return params.choice ? "constraint.choice" : "constraint.json_schema";
}

// Returns texts one after the other, each with its size.
std::string JoinSized(std::span<const std::string> texts) {
  std::string joined;
  for (const std::string& text : texts) {
    joined += Concat(text.size(), ":", text);
  }
  return joined;
}

// Returns the contents of a language, each one once.
std::string ContentsOf(const ConstraintParams& params) {
  if (params.regex) return Concat("r", *params.regex);
  if (params.grammar) return Concat("g", *params.grammar);
  if (params.json_schema) {
    const std::string spaces =
        params.whitespace
            ? Concat("p", params.whitespace->size(), ":", *params.whitespace)
            : (params.has_spaces ? "s" : "n");
    return Concat(params.disable_additional_properties ? "J" : "j", spaces,
                  *params.json_schema);
  }
  if (params.tool_calls) return Concat("t", *params.tool_calls);
  return params.choice ? Concat("c", JoinSized(params.choice->items())) : "";
}

std::string LanguageOf(const GenerationParams& params) {
  const std::string& start = params.start_after;
  std::string language = ContentsOf(*params.constraint);
  const SharedList<std::string>& words = params.constraint->must_contain;
  if (!words.empty()) {
    language =
        Concat("w", words.size(), ":", JoinSized(words.items()), language);
  }
  if (start.empty()) return language;
  return Concat("a", start.size(), ":", start, language);
}

// The special token that a constraint starts after; unset if it starts after
// text, or at once.
std::optional<ToolCallMark> StartMarkOf(const std::string& start_after,
                                        const Tokenizer& tokenizer) {
  constexpr char kByte = '\xF8';  // no mark of a format has it
  const std::optional<TokenId> token = tokenizer.PieceToId(start_after);
  if (start_after.empty() || !token || !tokenizer.is_special(*token)) return {};
  return ToolCallMark{*token, start_after, kByte};
}

absl::StatusOr<GrammarLanguage> DelayLanguage(const GrammarLanguage& language,
                                              const std::string& start_after,
                                              const Tokenizer& tokenizer) {
  const auto mark = StartMarkOf(start_after, tokenizer);
  CompileBudget budget;
  absl::StatusOr<GrammarLanguage> delayed = StartAfter(
      mark ? std::string_view(&mark->byte, 1) : start_after, language, &budget);
  if (delayed.ok()) return delayed;
  return InvalidField("`start_after`: ", Message(delayed.status()),
                      Got(ShownInQuotes(start_after)));
}

// A token that ends the output, or that marks calls of tools, cannot also be
// where they begin.
absl::Status CheckStartToken(const ConstraintParams& params,
                             const ConstraintLanguage::Key& key,
                             const Tokenizer& tokenizer) {
  const auto mark = StartMarkOf(key.start_token, tokenizer);
  if (!mark) return absl::OkStatus();
  if (std::ranges::find(key.end_ids, mark->token) != key.end_ids.end()) {
    return InvalidField(
        "`start_after` must not be a special token that ends the output",
        Got(ShownInQuotes(key.start_token)));
  }
  if (!params.tool_calls) return absl::OkStatus();
  const std::vector<ToolCallMark> marks = SpecialMarksOf(tokenizer);
  if (std::ranges::find(marks, mark->token, &ToolCallMark::token) ==
      marks.end()) {
    return absl::OkStatus();
  }
  return InvalidField("`start_after` must not be a mark of calls of tools",
                      Got(ShownInQuotes(key.start_token)));
}

// True if the output is a text of its own, so that the spaces that the
// tokenizer drops at the start of a text fall.
bool OpensText(const Tokenizer& tokenizer, const ModelDescription& model,
               const Request& request) {
  return TextBegin(tokenizer, model, request).drops_space();
}

absl::StatusOr<GrammarLanguage> CompileKind(const ConstraintParams& params,
                                            const Tokenizer& tokenizer) {
  if (params.grammar) return CompileGbnf(*params.grammar);
  if (params.tool_calls) {
    const auto ignore = [](int, std::string_view, const JsonText&) {};
    ASSIGN_OR_RETURN(const JsonText json,
                     ScanJson(*params.tool_calls, 0, ignore));
    ASSIGN_OR_RETURN(const ToolCallRules rules,
                     ReadToolCallRules("constraint.tool_calls", json));
    return CompileToolCalls(rules, SpecialMarksOf(rules.format, tokenizer));
  }
  if (params.choice) return CompileChoice(params.choice->items());
  // must_contain needs an automaton without calls.
  if (params.regex && !params.must_contain.empty()) {
    return CompileRegex(*params.regex);
  }
  if (params.regex) return CompileRegexLanguage(*params.regex);
  if (params.whitespace) {
    RETURN_IF_ERROR(
        CheckWhitespace("constraint.whitespace", *params.whitespace));
  }
  const JsonSchemaOptions options = {
      .has_spaces = params.has_spaces,
      .whitespace = params.whitespace,
      .disable_additional_properties = params.disable_additional_properties,
      .only_recursion_is_called = !params.must_contain.empty()};
  return CompileJsonSchemaWithCalls(*params.json_schema, options);
}

absl::StatusOr<GrammarLanguage> CompileLanguage(const ConstraintParams& params,
                                                const Tokenizer& tokenizer) {
  std::optional<GrammarLanguage> kind;
  if (!IsAnyText(params)) {
    ASSIGN_OR_RETURN(kind, CompileKind(params, tokenizer));
  }
  const SharedList<std::string>& words = params.must_contain;
  if (words.empty()) return *std::move(kind);
  constexpr std::string_view kWords = "constraint.must_contain";
  std::optional<ByteAutomaton> texts;
  if (kind.has_value()) {
    auto* const automaton = std::get_if<ByteAutomaton>(&*kind);
    if (automaton == nullptr) {
      return InvalidField(FieldName{kWords}, " must be empty with ",
                          FieldName{KindOf(params)}, " that recurs",
                          Got(Pluralize(words.size(), "string")));
    }
    texts = std::move(*automaton);
  }
  CompileBudget budget;
  absl::StatusOr<ByteAutomaton> containing =
      ContainWords(texts, words.items(), &budget);
  if (containing.ok()) return containing;
  return InvalidField(FieldName{kWords}, ": ", Message(containing.status()));
}

absl::StatusOr<std::shared_ptr<const LanguageConstraint>> Constrain(
    GrammarLanguage language, std::shared_ptr<const TokenVocabulary> vocabulary,
    const ConstraintLanguage::Key& key, int64_t max_list_bytes,
    std::string_view name) {
  if (auto* const calls = std::get_if<PushdownAutomaton>(&language)) {
    return PushdownConstraint::Make(
        std::make_shared<const PushdownAutomaton>(std::move(*calls)),
        std::move(vocabulary),
        {.end_ids = key.end_ids,
         .max_list_bytes = max_list_bytes,
         .opens_text = key.opens_text,
         .name = std::string(name)});
  }
  ASSIGN_OR_RETURN(
      TokenConstraint texts,
      TokenConstraint::Make(std::make_shared<const ByteAutomaton>(
                                std::get<ByteAutomaton>(std::move(language))),
                            std::move(vocabulary), {}, key.opens_text));
  return TextConstraint::Make(std::move(texts), key.end_ids, max_list_bytes);
}

// If there is but the empty text, which min_new_tokens rules out, the request
// ends where no token may follow, with the error that names it.
absl::Status CheckRoom(const LanguageConstraint& constraint,
                       const GenerationParams& params) {
  const int64_t num_tokens = params.max_new_tokens.value_or(0);
  const int32_t needed = constraint.MinRoom(params.min_new_tokens == 0);
  if (num_tokens == 0 || num_tokens >= needed ||
      needed == LanguageConstraint::kNever) {
    return absl::OkStatus();
  }
  return InvalidField("`max_new_tokens` must be at least ", needed,
                      params.start_after.empty()
                          ? ", which a text of `constraint` needs"
                          : ", which `start_after` and a text of `constraint` "
                            "need",
                      Got(num_tokens));
}

}  // namespace

ConstraintCache::ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer,
                                 ModelDescription model, int64_t max_bytes,
                                 int64_t max_list_bytes)
    : tokenizer_(std::move(tokenizer)),
      model_(std::move(model)),
      max_bytes_(max_bytes),
      max_list_bytes_(max_list_bytes) {}

absl::StatusOr<std::shared_ptr<ConstraintLanguage>> ConstraintCache::Find(
    const Request& request) {
  if (!request.params.constraint || request.params.constraint->items) {
    return nullptr;
  }
  const ConstraintParams& params = *request.params.constraint;
  if (tokenizer_ == nullptr) {
    return InvalidField(
        "`constraint` must be unset without a tokenizer, which makes the text "
        "that it is of",
        Got(KindOf(params).substr(std::string_view("constraint.").size())));
  }
  const SharedList<TokenId> end_ids = FinishingTokenIds(request.params);
  const std::string& start_after = request.params.start_after;
  Key key = {.language = LanguageOf(request.params),
             .end_ids = end_ids.items(),
             .opens_text = OpensText(*tokenizer_, model_, request),
             .has_marks = params.tool_calls.has_value()};
  if (StartMarkOf(start_after, *tokenizer_)) key.start_token = start_after;
  key.hash = HashOf(key.language);
  Languages unused;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  std::shared_ptr<ConstraintLanguage> found = FindCompiled(key);
  if (found != nullptr) {
    DropOldest();  // their lists have grown
  } else {
    found = FindUncompiled(key);
  }
  if (found == nullptr) {
    found = std::make_shared<ConstraintLanguage>(std::move(key), params,
                                                 start_after);
    uncompiled_.push_front(found);
  }
  unused = TakeUnused();
  return found;
}

absl::StatusOr<std::shared_ptr<const Constraint>> ConstraintCache::Compile(
    ConstraintLanguage* language) {
  if (!language->is_compiled_) {
    const std::lock_guard compiling(language->compiling_);
    if (!language->is_compiled_) {
      language->compiled_ =
          Make(language->params_, language->start_after_, language->key_);
      Keep(language);
      language->params_ = {};
    }
  }
  RETURN_IF_ERROR(language->compiled_->status());
  return (*language->compiled_)->constraint;
}

absl::StatusOr<std::shared_ptr<const Constraint>> ConstraintCache::Get(
    const Request& request) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ConstraintLanguage> language,
                   Find(request));
  if (language == nullptr) return nullptr;
  return CompileFor(request, language.get());
}

absl::StatusOr<std::shared_ptr<const Constraint>> ConstraintCache::CompileFor(
    const Request& request, ConstraintLanguage* language) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Constraint> constraint,
                   Compile(language));
  RETURN_IF_ERROR(
      CheckRoom(*(*language->compiled_)->constraint, request.params));
  return constraint;
}

std::shared_ptr<ConstraintLanguage> ConstraintCache::FindCompiled(
    const Key& key) {
  const auto found = std::ranges::find_if(
      compiled_, [&](const auto& language) { return language->key_ == key; });
  if (found == compiled_.end()) return nullptr;
  const auto& compiled = *(*found)->compiled_;
  const bool is_full = compiled.ok() && compiled->constraint->is_full();
  Languages& to = is_full ? dropped_ : compiled_;
  to.splice(to.begin(), compiled_, found);
  return is_full ? nullptr : compiled_.front();
}

std::shared_ptr<ConstraintLanguage> ConstraintCache::FindUncompiled(
    const Key& key) {
  for (auto it = uncompiled_.begin(); it != uncompiled_.end();) {
    std::shared_ptr<ConstraintLanguage> language = it->lock();
    if (language != nullptr && language->key_ == key) return language;
    it = language == nullptr ? uncompiled_.erase(it) : std::next(it);
  }
  return nullptr;
}

void ConstraintCache::Keep(ConstraintLanguage* language) {
  Languages unused;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      uncompiled_, [&](const auto& of) { return of.lock().get() == language; });
  compiled_.push_front(found->lock());
  uncompiled_.erase(found);
  language->is_compiled_ = true;
  ++num_compiled_;
  DropOldest();
  unused = TakeUnused();
}

void ConstraintCache::DropOldest() {
  std::set<const TokenVocabulary*> counted;
  int64_t num_bytes = 0;
  int num_kept = 0;
  for (auto it = compiled_.begin(); it != compiled_.end(); ++it) {
    const ConstraintLanguage& language = **it;
    num_bytes += std::ssize(language.key_.language);
    if (language.compiled_->ok()) {
      const Compiled& compiled = **language.compiled_;
      num_bytes += compiled.constraint->num_bytes();
      if (counted.insert(compiled.vocabulary.tokens.get()).second) {
        num_bytes += compiled.vocabulary.num_bytes;
      }
    }
    if (num_kept > 0 && (num_bytes > max_bytes_ || num_kept == kMaxLanguages)) {
      dropped_.splice(dropped_.begin(), compiled_, it, compiled_.end());
      return;
    }
    ++num_kept;
  }
}

ConstraintCache::Languages ConstraintCache::TakeUnused() {
  Languages unused;
  for (auto it = dropped_.begin(); it != dropped_.end();) {
    const auto next = std::next(it);
    const auto& compiled = *(*it)->compiled_;
    const bool is_used =
        it->use_count() > 1 ||
        (compiled.ok() && compiled->constraint.use_count() > 1);
    if (!is_used) unused.splice(unused.begin(), dropped_, it);
    it = next;
  }
  return unused;
}

absl::StatusOr<ConstraintCache::Compiled> ConstraintCache::Make(
    const ConstraintParams& params, const std::string& start_after,
    const Key& key) {
  const auto compile = [&]() -> absl::StatusOr<Compiled> {
    RETURN_IF_ERROR(CheckStartToken(params, key, *tokenizer_));
    ASSIGN_OR_RETURN(GrammarLanguage language,
                     CompileLanguage(params, *tokenizer_));
    if (!start_after.empty()) {
      ASSIGN_OR_RETURN(language,
                       DelayLanguage(language, start_after, *tokenizer_));
    }
    std::shared_ptr<const TokenVocabulary> vocabulary = CommonVocabulary();
    Compiled compiled = {.vocabulary = OwnVocabulary(key, *vocabulary)};
    if (compiled.vocabulary.tokens != nullptr) {
      vocabulary = compiled.vocabulary.tokens;
    }
    ASSIGN_OR_RETURN(compiled.constraint,
                     Constrain(std::move(language), std::move(vocabulary), key,
                               max_list_bytes_, KindOf(params)));
    return compiled;
  };
  absl::StatusOr<Compiled> compiled = compile();
  if (compiled.ok() || FieldErrorOf(compiled.status())) return compiled;
  return InvalidField(FieldName{KindOf(params)}, ": ",
                      Message(compiled.status()));
}

std::shared_ptr<const TokenVocabulary> ConstraintCache::CommonVocabulary() {
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

// An ordinary token that ends a sequence is no part of a text, and a special
// one that marks calls of tools is.
ConstraintCache::Vocabulary ConstraintCache::OwnVocabulary(
    const Key& key, const TokenVocabulary& common) {
  std::vector<ToolCallMark> marks;
  if (key.has_marks) marks = SpecialMarksOf(*tokenizer_);
  if (const auto mark = StartMarkOf(key.start_token, *tokenizer_)) {
    marks.push_back(*mark);
  }
  const bool end_adds_text =
      std::ranges::any_of(key.end_ids, [&](TokenId token) {
        return token < common.inside.vocab_size() &&
               !common.inside.BytesOf(token).empty();
      });
  if (!end_adds_text && marks.empty()) return {};
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<ConstraintLanguage>& language : compiled_) {
      const auto& compiled = *language->compiled_;
      if (language->key_.end_ids == key.end_ids &&
          language->key_.has_marks == key.has_marks &&
          language->key_.start_token == key.start_token && compiled.ok()) {
        return compiled->vocabulary;
      }
    }
  }
  Vocabulary made = {std::make_shared<const TokenVocabulary>(
      TokenBytesOf(*tokenizer_, key.end_ids, model_.vocab_size, marks))};
  made.num_bytes = made.tokens->num_bytes();
  return made;
}

int64_t ConstraintCache::num_compiled() const {
  const std::lock_guard lock(mutex_);
  return num_compiled_;
}

}  // namespace espalier
