#include "constrain/json_assertions.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "constrain/automaton_algebra.h"
#include "constrain/choice_language.h"
#include "constrain/json_number_language.h"
#include "constrain/json_string_language.h"
#include "constrain/shared_language.h"

namespace espalier {

Formula JsonAssertions::Add(const JsonAssertion& assertion) {
  const auto [entry, is_new] =
      variables_.try_emplace(assertion, static_cast<int32_t>(all_.size()));
  if (is_new) all_.push_back(assertion);
  return pool_.Variable(entry->second);
}

Formula JsonAssertions::ForType(Formula formula, JsonType type) {
  return pool_.Substitute(formula, [&](int32_t variable) {
    const JsonAssertion& assertion = Of(variable);
    if (assertion.kind != Kind::kType) return pool_.Variable(variable);
    return assertion.index == static_cast<int64_t>(type) ? FormulaPool::kTrue
                                                         : FormulaPool::kFalse;
  });
}

absl::StatusOr<Formula> JsonAssertions::AddLanguage(
    Kind kind, std::string name,
    absl::FunctionRef<absl::StatusOr<ByteAutomaton>()> make, bool is_complete) {
  const auto found = language_ids_.find({kind, name});
  if (found != language_ids_.end()) {
    return Add({.kind = kind, .index = found->second});
  }
  ASSIGN_OR_RETURN(ByteAutomaton automaton, make());
  const auto index = static_cast<int64_t>(languages_.size());
  languages_.push_back({.automaton = std::move(automaton),
                        .is_complete = is_complete,
                        .name = name});
  language_ids_.emplace(std::pair(kind, std::move(name)), index);
  return Add({.kind = kind, .index = index});
}

absl::StatusOr<Formula> JsonAssertions::AddMinLength(int64_t length,
                                                     int64_t max_unrolled,
                                                     std::string name) {
  if (length == 0) return FormulaPool::kTrue;
  if (length > max_unrolled) {
    std::string& known = length_names_.try_emplace(length, name).first->second;
    if (known != name) known = Concat("a length of ", length, " or more");
    return Add({.kind = Kind::kMinLength, .index = length});
  }
  return AddLanguage(Kind::kString, Concat("length from ", length), [&] {
    return StringsOfLength(length, std::nullopt, budget_);
  });
}

absl::StatusOr<Formula> JsonAssertions::AddTexts(
    Kind kind, std::vector<std::string> texts) {
  if (texts.empty()) return FormulaPool::kFalse;
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::string name = "texts";
  for (const std::string& text : texts) {
    name += Concat(":", text.size(), ":");
    name += text;
  }
  return AddLanguage(kind, std::move(name),
                     [&] { return CompileChoice(texts, budget_); });
}

const std::string* JsonAssertions::IncompleteIn(Formula formula) const {
  for (const int32_t variable : pool_.VariablesOf(formula)) {
    const JsonAssertion& assertion = Of(variable);
    if (assertion.kind != Kind::kString) continue;
    const Language& language = languages_[assertion.index];
    if (!language.is_complete) return &language.name;
  }
  return nullptr;
}

absl::Status JsonAssertions::IncompleteError(const Language& language) {
  return InvalidArgument(language.name,
                         " is enforced by a part of its strings, so that ",
                         "other strings cannot be told from it");
}

absl::StatusOr<const JsonAssertions::Language*> JsonAssertions::LanguageOf(
    int32_t variable) {
  const JsonAssertion& assertion = Of(variable);
  if (assertion.kind != Kind::kMinLength) return &languages_[assertion.index];
  auto known = lengths_.find(assertion.index);
  if (known == lengths_.end()) {
    absl::StatusOr<ByteAutomaton> automaton =
        StringsOfLength(assertion.index, std::nullopt, budget_);
    if (!automaton.ok()) {
      return Annotate(automaton.status(), length_names_.at(assertion.index));
    }
    known = lengths_
                .emplace(assertion.index,
                         Language{.automaton = *std::move(automaton),
                                  .is_complete = true,
                                  .name = "length"})
                .first;
  }
  return &known->second;
}

absl::StatusOr<const ByteAutomaton*> JsonAssertions::Combine(
    Formula formula, const ByteAutomaton& universe, Languages* known) {
  const auto found = known->find(formula);
  if (found != known->end()) {
    return found->second ? &*found->second : nullptr;
  }
  const Language* incomplete = nullptr;
  pool_.ForEachPolarity(formula, [&](int32_t variable, bool is_positive) {
    if (Of(variable).kind == Kind::kMinLength) return;
    const Language& language = languages_[Of(variable).index];
    if (!is_positive && !language.is_complete) incomplete = &language;
  });
  if (incomplete != nullptr) return IncompleteError(*incomplete);
  const std::vector<int32_t> variables = pool_.VariablesOf(formula);
  std::vector<const ByteAutomaton*> automata;
  for (const int32_t variable : variables) {
    ASSIGN_OR_RETURN(const Language* const language, LanguageOf(variable));
    automata.push_back(&language->automaton);
  }
  const int64_t steps = pool_.NumParts(formula);
  absl::Status status;
  const auto decide = [&](std::span<const Truth> truths) {
    if (status.ok()) status = budget_->Take(steps);
    if (!status.ok()) return Truth::kUnknown;
    return pool_.Evaluate(formula, [&](int32_t variable) {
      const auto at =
          std::lower_bound(variables.begin(), variables.end(), variable);
      return truths[at - variables.begin()];
    });
  };
  ASSIGN_OR_RETURN(std::optional<ByteAutomaton> automaton,
                   CombineAutomata(universe, automata, decide, budget_));
  RETURN_IF_ERROR(status);
  const auto entry = known->emplace(formula, std::move(automaton)).first;
  return entry->second ? &*entry->second : nullptr;
}

absl::StatusOr<const ByteAutomaton*> JsonAssertions::Strings(Formula formula) {
  if (formula == FormulaPool::kFalse) return nullptr;
  if (any_string_ == nullptr) {
    static const auto* const kShared =
        new SharedLanguage<ByteAutomaton>([](CompileBudget* budget) {
          return StringsOfLength(0, std::nullopt, budget);
        });
    ASSIGN_OR_RETURN(any_string_, kShared->Get(budget_));
  }
  if (formula == FormulaPool::kTrue) return any_string_;
  return Combine(formula, *any_string_, &strings_);
}

absl::StatusOr<std::optional<std::vector<JsonAssertions::BoundedStrings>>>
JsonAssertions::ByLength(Formula formula) {
  std::set<int64_t> lengths;
  for (const int32_t variable : pool_.VariablesOf(formula)) {
    if (Of(variable).kind == Kind::kMinLength) {
      lengths.insert(Of(variable).index);
    }
  }
  if (lengths.empty()) return std::nullopt;
  // The strings from one of the lengths to the next, from long to short.
  std::vector<BoundedStrings> result;
  int64_t max_length = kNoMaxLength;
  Formula longer = FormulaPool::kFalse;
  lengths.insert(0);
  for (auto it = lengths.rbegin(); it != lengths.rend(); ++it) {
    const int64_t min_length = *it;
    const Formula strings =
        pool_.Substitute(formula, [&](int32_t variable) -> Formula {
          const JsonAssertion& assertion = Of(variable);
          if (assertion.kind != Kind::kMinLength) {
            return pool_.Variable(variable);
          }
          return assertion.index <= min_length ? FormulaPool::kTrue
                                               : FormulaPool::kFalse;
        });
    if (!result.empty() && result.back().min_length > 0) {
      // Below the least length there must be none.
      if (strings != FormulaPool::kFalse) return std::nullopt;
      continue;
    }
    const Formula only_longer = pool_.And({longer, Not(strings)});
    if (only_longer != FormulaPool::kFalse) {
      const absl::StatusOr<const ByteAutomaton*> found = Strings(only_longer);
      RETURN_IF_ERROR(pool_.status());
      if (!found.ok()) return std::nullopt;
      if (*found != nullptr) {
        if (result.size() != 1 || strings != FormulaPool::kFalse) {
          return std::nullopt;
        }
        result[0].min_length = max_length + 1;
        continue;
      }
    }
    if (strings != longer) {
      ASSIGN_OR_RETURN(const ByteAutomaton* const automaton, Strings(strings));
      if (automaton != nullptr && MinCodePoints(*automaton) <= max_length) {
        result.push_back({strings, max_length});
      }
    }
    longer = strings;
    max_length = min_length - 1;
  }
  return result;
}

absl::StatusOr<bool> JsonAssertions::HasStrings(Formula formula) {
  ASSIGN_OR_RETURN(const auto bounded, ByLength(formula));
  // All of them may be shorter than the least length.
  const bool has_least = bounded && !bounded->empty() &&
                         bounded->front().min_length > 0 &&
                         bounded->front().strings != FormulaPool::kTrue;
  if (bounded && !has_least) return !bounded->empty();
  ASSIGN_OR_RETURN(const ByteAutomaton* const strings, Strings(formula));
  return strings != nullptr;
}

absl::StatusOr<const ByteAutomaton*> JsonAssertions::Numbers(Formula formula) {
  if (formula == FormulaPool::kFalse) return nullptr;
  if (formula == FormulaPool::kTrue) {
    if (any_number_ == nullptr) {
      static const auto* const kShared =
          new SharedLanguage<ByteAutomaton>(AnyNumbers);
      ASSIGN_OR_RETURN(any_number_, kShared->Get(budget_));
    }
    return any_number_;
  }
  if (canonical_number_ == nullptr) {
    static const auto* const kShared =
        new SharedLanguage<ByteAutomaton>(CanonicalNumbers);
    ASSIGN_OR_RETURN(canonical_number_, kShared->Get(budget_));
  }
  return Combine(formula, *canonical_number_, &numbers_);
}

absl::StatusOr<bool> JsonAssertions::HasString(Formula formula,
                                               std::string_view string) {
  const auto truth_of = [&](int32_t variable) {
    if (Of(variable).kind == Kind::kMinLength) {
      return NumCodePoints(string) >= Of(variable).index ? Truth::kTrue
                                                         : Truth::kFalse;
    }
    const Language& language = languages_[Of(variable).index];
    if (language.automaton.Match(string).in_language) return Truth::kTrue;
    return language.is_complete ? Truth::kFalse : Truth::kUnknown;
  };
  const Truth truth = pool_.Evaluate(formula, truth_of);
  if (truth != Truth::kUnknown) return truth == Truth::kTrue;
  const Language* incomplete = nullptr;
  pool_.ForEachPolarity(formula, [&](int32_t variable, bool is_positive) {
    if (!is_positive && truth_of(variable) == Truth::kUnknown) {
      incomplete = &languages_[Of(variable).index];
    }
  });
  if (incomplete != nullptr) return IncompleteError(*incomplete);
  return false;
}

int64_t JsonAssertions::AddKey(std::string_view key) {
  const auto found = key_ids_.find(key);
  if (found != key_ids_.end()) return found->second;
  const auto entry =
      key_ids_.emplace(key, static_cast<int64_t>(keys_.size())).first;
  keys_.push_back(&entry->first);
  return entry->second;
}

}  // namespace espalier
