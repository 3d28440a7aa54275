#include "request/validate_tokens.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/bad_words.h"
#include "request/param_checks.h"
#include "text/stop_strings.h"

namespace espalier {
namespace {

using TokenIds = std::vector<int64_t>;

// Ids, or sequences of them: in ascending order, each once.
template <typename T>
void MakeSet(std::vector<T>* items) {
  std::sort(items->begin(), items->end());
  items->erase(std::unique(items->begin(), items->end()), items->end());
}

// The set of a list; unset where the list is a set by itself.
template <typename T>
struct SetOf {
  std::optional<SharedList<T>> set;
};

template <typename T>
void MakeSet(SharedList<T>* list) {
  if (list->empty()) return;
  const auto made = list->template Derived<SetOf<T>>({}, [&] {
    std::vector<T> items = *list;
    MakeSet(&items);
    SetOf<T> set;
    if (items != list->items()) set.set.emplace(std::move(items));
    return set;
  });
  if (made->set.has_value()) *list = *made->set;
}

// Marks a list as checked. Another name, or other values in the key, is another
// check.
template <typename Name>
struct Passed {};

// Runs `check` once for all copies of a list, unless it fails.
template <typename Name, typename T, typename Check>
absl::Status CheckOnce(const SharedList<T>& list, const DerivedValues::Key& key,
                       const Check& check) {
  if (list.empty()) return absl::OkStatus();
  if (list.template HasDerived<Passed<Name>>(key)) return absl::OkStatus();
  const absl::Status status = check();
  if (!status.ok()) return status;
  list.template Derived<Passed<Name>>(key, [] { return Passed<Name>(); });
  return status;
}

// REQUIRES: `ids` is a set.
bool Contains(const TokenIds& ids, int64_t id) {
  return std::ranges::binary_search(ids, id);
}

struct IdsInVocabulary;
struct EndingsLast;

// Checks a field that accepts one id in place of a list.
absl::Status CheckIds(std::string_view field, const SharedList<int64_t>& ids,
                      int vocab_size) {
  const absl::Status status = CheckOnce<IdsInVocabulary>(
      ids, {vocab_size}, [&] { return CheckTokens(field, ids, vocab_size); });
  if (status.ok() || ids.size() > 1) return status;
  return InvalidField(FieldName{field}, " must be a token id in [0, ",
                      vocab_size, ")", Got(ids[0]));
}

struct Longest {
  int64_t num_tokens = 0;
};

// Checks lists shared by several requests, once for all of them.
absl::Status CheckSharedSequences(std::string_view field,
                                  const SharedList<TokenIds>& sequences,
                                  int vocab_size) {
  return CheckOnce<IdsInVocabulary>(sequences, {vocab_size}, [&] {
    return CheckSequences(field, sequences.items(), vocab_size);
  });
}

absl::Status CheckNumStopIds(const ModelDescription& model,
                             const GenerationParams& params) {
  const int64_t limit = model.limits.max_eos_token_ids;
  const int64_t num_eos =
      params.ignore_eos ? 0 : std::ssize(*params.eos_token_id);
  if (num_eos + std::ssize(params.stop_token_ids) <= limit) {
    return absl::OkStatus();
  }
  TokenIds ids = params.stop_token_ids;
  if (!params.ignore_eos) {
    ids.insert(ids.end(), params.eos_token_id->begin(),
               params.eos_token_id->end());
  }
  MakeSet(&ids);
  const auto num_ids = std::ssize(ids);
  if (num_ids <= limit) return absl::OkStatus();
  return InvalidField(
      params.stop_token_ids.empty() ? "`eos_token_id`"
                                    : "`eos_token_id` and `stop_token_ids`",
      " must have at most ", Limit(limit), " ids", kPerStep, Got(num_ids));
}

absl::Status ValidateStopStrings(const GenerationParams& params) {
  if (params.stop.empty()) {
    return CheckOff("include_stop", params.include_stop, false,
                    "without `stop`");
  }
  return StopStrings::Check(params.stop);
}

using TokenBiases = SharedList<std::pair<int64_t, double>>;

absl::Status CheckBiases(const ModelDescription& model,
                         const TokenBiases& biases) {
  for (const auto& [token, bias] : biases) {
    if (token < 0 || token >= model.vocab_size) {
      return InvalidField("`logit_bias` must name token ids in [0, ",
                          model.vocab_size, ")", Got(token));
    }
    if (CheckFloat32("logit_bias", bias).ok()) continue;
    return CheckFloat32(Concat("logit_bias of token ", token), bias);
  }
  auto sorted = biases.items();
  std::sort(sorted.begin(), sorted.end());
  const auto twin = std::ranges::adjacent_find(
      sorted, {}, &std::pair<int64_t, double>::first);
  if (twin == sorted.end()) return absl::OkStatus();
  return InvalidField("`logit_bias` must name each token once",
                      Got(twin->first, " twice"));
}

// Ascending, each token once.
absl::Status ValidateBias(const ModelDescription& model,
                          GenerationParams* params) {
  TokenBiases& biases = params->logit_bias;
  RETURN_IF_ERROR(CheckOnce<IdsInVocabulary>(
      biases, {model.vocab_size}, [&] { return CheckBiases(model, biases); }));
  MakeSet(&biases);
  return absl::OkStatus();
}

absl::Status CheckSequenceBiases(const ModelDescription& model,
                                 const SharedList<SequenceBias>& biases) {
  for (size_t i = 0; i < biases.size(); ++i) {
    const auto& [tokens, bias] = biases[i];
    const bool are_tokens =
        CheckTokens("sequence_bias", tokens, model.vocab_size).ok();
    if (are_tokens && !tokens.empty() &&
        CheckFloat32("sequence_bias", bias).ok()) {
      continue;
    }
    // To name one costs more than to check it.
    const std::string name = Concat("sequence_bias[", i, "]");
    if (tokens.empty()) {
      return InvalidField(FieldName{name}, "[0] must not be empty", Got("[]"));
    }
    RETURN_IF_ERROR(CheckTokens(Concat(name, "[0]"), tokens, model.vocab_size));
    return CheckFloat32(Concat(name, "[1]"), bias);
  }
  std::vector<SequenceBias> sorted = biases;
  std::ranges::sort(sorted, {}, &SequenceBias::tokens);
  const auto twin =
      std::ranges::adjacent_find(sorted, {}, &SequenceBias::tokens);
  if (twin == sorted.end()) return absl::OkStatus();
  return InvalidField(
      "`sequence_bias` must name each sequence once",
      Got("one ", "of ", Pluralize(twin->tokens.size(), "token"),
          " that ends in ", twin->tokens.back(), " twice"));
}

// Ascending, each sequence once.
absl::Status ValidateSequenceBias(const ModelDescription& model,
                                  GenerationParams* params) {
  SharedList<SequenceBias>& biases = params->sequence_bias;
  RETURN_IF_ERROR(CheckOnce<IdsInVocabulary>(biases, {model.vocab_size}, [&] {
    return CheckSequenceBiases(model, biases);
  }));
  MakeSet(&biases);
  return absl::OkStatus();
}

absl::Status CheckEachEnding(const GenerationParams& params) {
  const auto& sequences = *params.allowed_sequences;
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (size_t j = 0; j + 1 < sequences[i].size(); ++j) {
      const int64_t token = sequences[i][j];
      const bool is_eos =
          !params.ignore_eos && Contains(*params.eos_token_id, token);
      if (!is_eos && !Contains(params.stop_token_ids, token)) continue;
      return InvalidField("`allowed_sequences`[", i, "][", j,
                          "] must not be an ", is_eos ? "EOS" : "ending",
                          " id unless it is the last", Got(token));
    }
  }
  return absl::OkStatus();
}

// A sequence ends where it ends: an id that ends sequences may only be last.
absl::Status CheckEndings(const GenerationParams& params) {
  return CheckOnce<EndingsLast>(
      *params.allowed_sequences,
      {params.ignore_eos ? 0 : params.eos_token_id->id(),
       params.stop_token_ids.id()},
      [&] { return CheckEachEnding(params); });
}

absl::Status ValidateAllowedSequences(const ModelDescription& model,
                                      const GenerationParams& params) {
  const auto& sequences = *params.allowed_sequences;
  if (sequences.empty()) {
    return InvalidField("`allowed_sequences` must not be empty", Got("[]"));
  }
  RETURN_IF_ERROR(
      CheckSharedSequences("allowed_sequences", sequences, model.vocab_size));
  const bool is_too_long = LengthOfLongest(sequences) > *params.max_new_tokens;
  for (size_t i = 0; is_too_long && i < sequences.size(); ++i) {
    if (std::ssize(sequences[i]) <= *params.max_new_tokens) continue;
    return InvalidField("`allowed_sequences`[", i, "] must have at most ",
                        Pluralize(*params.max_new_tokens, "token"),
                        " (`max_new_tokens`)", Got(sequences[i].size()));
  }
  if (params.allowed_token_ids) {
    return InvalidField(
        "`allowed_token_ids` must be unset with `allowed_sequences`",
        Got(Pluralize(params.allowed_token_ids->size(), "id")));
  }
  if (!params.stop.empty()) {
    return InvalidField("`stop` must be empty with `allowed_sequences`",
                        Got(Pluralize(params.stop.size(), "string")));
  }
  return CheckEndings(params);
}

absl::Status ValidateItems(const ModelDescription& model,
                           const GenerationParams& params) {
  const ConstraintParams& constraint = *params.constraint;
  if (!params.start_after.empty()) {
    return InvalidField("`start_after` must be unset with `constraint.items`",
                        Got(ShownInQuotes(params.start_after)));
  }
  RETURN_IF_ERROR(CheckSharedSequences("constraint.exclude_prefixes",
                                       constraint.exclude_prefixes,
                                       model.vocab_size));
  const std::vector<TextOrTokens>& excluded = constraint.exclude;
  for (size_t i = 0; i < excluded.size(); ++i) {
    const auto* ids = std::get_if<std::vector<TokenId>>(&excluded[i]);
    if (ids == nullptr ||
        CheckTokens("constraint.exclude", *ids, model.vocab_size).ok()) {
      continue;
    }
    return CheckTokens(Concat("constraint.exclude[", i, "]"), *ids,
                       model.vocab_size);
  }
  return absl::OkStatus();
}

// The language itself is checked where it is compiled
// (beam/constraint_cache.h), and a catalogue where it is found
// (beam/constrain_to_items.h).
absl::Status CheckContained(const ConstraintParams& constraint) {
  constexpr std::string_view kWords = "constraint.must_contain";
  const SharedList<std::string>& words = constraint.must_contain;
  if (std::ssize(words) > kMaxContainedWords) {
    return InvalidField(FieldName{kWords}, " must have at most ",
                        kMaxContainedWords, " strings", Got(words.size()));
  }
  for (int64_t i = 0; i < std::ssize(words); ++i) {
    const std::string name = Concat(kWords, "[", i, "]");
    if (words[i].empty()) {
      return InvalidField(FieldName{name}, " must not be empty", Got("\"\""));
    }
    if (!IsUtf8(words[i])) {
      return InvalidField(FieldName{name}, " must be UTF-8");
    }
  }
  if (!constraint.tool_calls && !constraint.items) return absl::OkStatus();
  return InvalidField(FieldName{kWords}, " must be empty with ",
                      constraint.items ? "items" : "tool_calls",
                      Got(Pluralize(words.size(), "string")));
}

// Checks the options that go with one kind of language alone.
absl::Status CheckConstraintOptions(const ConstraintParams& constraint) {
  if (!constraint.json_schema) {
    constexpr Prose kWhere = "without a schema";
    if (constraint.whitespace) {
      return InvalidField("`constraint.whitespace` must be unset ", kWhere,
                          Got(ShownInQuotes(*constraint.whitespace)));
    }
    RETURN_IF_ERROR(
        CheckOff("constraint.has_spaces", constraint.has_spaces, true, kWhere));
    RETURN_IF_ERROR(CheckOff("constraint.disable_additional_properties",
                             constraint.disable_additional_properties, false,
                             kWhere));
  }
  if (constraint.items) return absl::OkStatus();
  if (!constraint.exclude.empty()) {
    return InvalidField("`constraint.exclude` must be empty without items",
                        Got(Pluralize(constraint.exclude.size(), "item")));
  }
  if (!constraint.exclude_prefixes.empty()) {
    return InvalidField(
        "`constraint.exclude_prefixes` must be empty without items",
        Got(Pluralize(constraint.exclude_prefixes.size(), "prefix",
                      "prefixes")));
  }
  return absl::OkStatus();
}

absl::Status ValidateConstraint(const ModelDescription& model,
                                const GenerationParams& params) {
  const ConstraintParams& constraint = *params.constraint;
  int num_kinds = int{constraint.regex.has_value()} +
                  int{constraint.choice.has_value()} +
                  int{constraint.json_schema.has_value()} +
                  int{constraint.grammar.has_value()} +
                  int{constraint.tool_calls.has_value()} +
                  int{constraint.items.has_value()};
  if (!constraint.must_contain.empty()) {
    RETURN_IF_ERROR(CheckContained(constraint));
    if (num_kinds == 0) num_kinds = 1;  // any text that contains them
  }
  if (num_kinds != 1) {
    return InvalidField("`constraint` must have one kind of language",
                        Got(num_kinds == 0 ? "none" : Concat(num_kinds)));
  }
  RETURN_IF_ERROR(CheckConstraintOptions(constraint));
  if (params.allowed_sequences) {
    return InvalidField(
        "`allowed_sequences` must be unset with `constraint`",
        Got(Pluralize(params.allowed_sequences->size(), "sequence")));
  }
  if (params.allowed_token_ids) {
    return InvalidField("`allowed_token_ids` must be unset with `constraint`",
                        Got(Pluralize(params.allowed_token_ids->size(), "id")));
  }
  return constraint.items ? ValidateItems(model, params) : absl::OkStatus();
}

absl::Status ValidateForced(const ModelDescription& model,
                            GenerationParams* params) {
  SharedList<int64_t> first;
  if (params->forced_bos_token_id) {
    first.push_back(*params->forced_bos_token_id);
  }
  for (const auto& [field, ids] :
       {std::pair("forced_bos_token_id", &first),
        std::pair("forced_eos_token_id", &params->forced_eos_token_id)}) {
    if (ids->empty()) continue;
    RETURN_IF_ERROR(CheckIds(field, *ids, model.vocab_size));
    MakeSet(ids);
    if (params->allowed_sequences || params->constraint) {
      return InvalidField(
          FieldName{field}, " must be unset with ",
          FieldName{params->constraint ? "constraint" : "allowed_sequences"},
          Got(ids->front()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSequences(std::string_view field,
                            const std::vector<TokenIds>& sequences,
                            int vocab_size) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].empty()) {
      return InvalidField(FieldName{field}, "[", i, "] must not be empty",
                          Got("[]"));
    }
    // To name a list costs more than to check it.
    if (CheckTokens(field, sequences[i], vocab_size).ok()) continue;
    return CheckTokens(Concat(field, "[", i, "]"), sequences[i], vocab_size);
  }
  return absl::OkStatus();
}

int64_t LengthOfLongest(const SharedList<TokenIds>& sequences) {
  if (sequences.empty()) return 0;
  return sequences
      .Derived<Longest>({},
                        [&] {
                          const auto longest = std::ranges::max_element(
                              sequences, {}, &TokenIds::size);
                          return Longest{std::ssize(*longest)};
                        })
      ->num_tokens;
}

absl::Status ValidateStops(const ModelDescription& model,
                           GenerationParams* params) {
  if (!params->eos_token_id) {
    params->eos_token_id.emplace(model.eos_token_ids.begin(),
                                 model.eos_token_ids.end());
  }
  SharedList<int64_t>& ids = *params->eos_token_id;
  RETURN_IF_ERROR(CheckIds("eos_token_id", ids, model.vocab_size));
  MakeSet(&ids);
  RETURN_IF_ERROR(
      CheckIds("stop_token_ids", params->stop_token_ids, model.vocab_size));
  MakeSet(&params->stop_token_ids);
  RETURN_IF_ERROR(CheckNumStopIds(model, *params));
  return ValidateStopStrings(*params);
}

absl::Status ValidateConstraints(const ModelDescription& model,
                                 GenerationParams* params) {
  RETURN_IF_ERROR(ValidateBias(model, params));
  RETURN_IF_ERROR(ValidateSequenceBias(model, params));
  RETURN_IF_ERROR(CheckSharedSequences("bad_words_ids", params->bad_words_ids,
                                       model.vocab_size));
  RETURN_IF_ERROR(CheckBadWords(params->bad_words));
  if (!params->bad_words.empty()) return NoTokensOfBadWords(*params);
  RETURN_IF_ERROR(
      CheckIds("suppress_tokens", params->suppress_tokens, model.vocab_size));
  RETURN_IF_ERROR(CheckIds("begin_suppress_tokens",
                           params->begin_suppress_tokens, model.vocab_size));
  if (params->allowed_token_ids) {
    if (params->allowed_token_ids->empty()) {
      return InvalidField("`allowed_token_ids` must not be empty", Got("[]"));
    }
    RETURN_IF_ERROR(CheckIds("allowed_token_ids", *params->allowed_token_ids,
                             model.vocab_size));
  }
  RETURN_IF_ERROR(
      CheckName("start_after", params->start_after, kMaxStartAfterBytes));
  if (params->constraint) RETURN_IF_ERROR(ValidateConstraint(model, *params));
  if (params->allowed_sequences) {
    RETURN_IF_ERROR(ValidateAllowedSequences(model, *params));
  }
  MakeSet(&params->bad_words_ids);
  MakeSet(&params->suppress_tokens);
  MakeSet(&params->begin_suppress_tokens);
  if (params->allowed_token_ids) MakeSet(&*params->allowed_token_ids);
  return ValidateForced(model, params);
}

}  // namespace espalier
