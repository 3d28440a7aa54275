#include "openai/object_fields.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/error.h"
#include "request/other_names.h"

namespace espalier::openai {
namespace {

constexpr size_t kMaxUnknown = 16;
constexpr size_t kMaxHints = 4;

// Hint for a field of the request format that calls do not have: its inputs and
// "params".
struct InputHint {
  std::string_view field;  // in the request format
  unsigned scopes;
  std::string_view hint;
};
constexpr InputHint kInputHints[] = {
    {"prompt", kInCompletions | kInTokenize, "did you mean prompt?"},
    {"prompt", kInChat, "did you mean messages?"},
    {"prompt", kInResponses, "did you mean input?"},
    {"prompt", kInTokens, "a text is a prompt of /v1/completions"},
    {"prompt", kInScoring, "did you mean query?"},
    {"prompt_tokens", kInScoring,
     "did you mean query? It takes token ids, too"},
    {"params", kInScoring, "its fields stand beside query"},
    {"prompt_tokens", kInCompletions,
     "did you mean prompt? It takes token ids, too"},
    {"prompt_tokens", kInChat, "token ids are a prompt of /v1/completions"},
    {"prompt_tokens", kInResponses,
     "token ids are a prompt of /v1/completions"},
    {"prompt_tokens", kInTokenize, "a prompt is a text here"},
    {"prompt_tokens", kInTokens, "did you mean token_ids?"},
    {"prompt_tokens", kInSampling,
     "did you mean token_ids beside sampling_params?"},
    {"prompt_tokens", kInDetokenize, "did you mean tokens?"},
    {"params", kInCompletions, "its fields stand beside prompt"},
    {"params", kInChat, "its fields stand beside messages"},
    {"params", kInResponses, "its fields stand beside input"},
    {"params", kInTokens, "did you mean sampling_params?"},
};

std::string HintAtInput(std::string_view name, Scope scope) {
  const OtherName* const other = FindOtherName(name);
  // A prompt is a field of other calls, but query is meant here.
  const bool is_ours = name == "prompt_tokens" || name == "params" ||
                       (name == "prompt" && scope == kInScoring);
  if (other == nullptr && !is_ours) return "";
  const std::string_view field = is_ours ? name : other->ours;
  for (const InputHint& input : kInputHints) {
    if (input.field == field && (input.scopes & scope)) {
      return Concat("; ", input.hint);
    }
  }
  return "";
}

// Returns a hint if the field belongs in the other object of a tokens call, or
// in the constraint.
std::string HintAtObject(std::string_view name, Scope scope) {
  constexpr std::string_view kOfConstraint[] = {
      "must_contain",     "items",      "exclude",
      "exclude_prefixes", "whitespace", "disable_additional_properties"};
  if (std::ranges::find(kOfConstraint, name) != std::end(kOfConstraint) &&
      FindCallField("constraint", scope)) {
    return "; it belongs in constraint";
  }
  if (scope == kInTokens && FindCallField(name, kInSampling)) {
    return "; it belongs in sampling_params";
  }
  if (scope == kInSampling && FindCallField(name, kInTokens)) {
    return "; it belongs beside sampling_params";
  }
  return "";
}

// Returns a hint for arguments of the chat template that clients of other
// servers put beside messages.
std::string HintAtTemplate(std::string_view name, Scope scope) {
  const bool is_argument = name == "enable_thinking" || name == "thinking";
  constexpr unsigned kChats = kInChat | kInTokenize | kInResponses;
  if (!is_argument || (scope & kChats) == 0) return "";
  return "; it belongs in chat_template_kwargs, if the template has it";
}

bool IsUnsupported(const KnownField& field) {
  return field.call != nullptr && field.call->read == nullptr;
}

// Returns a hint that names another route with this field.
std::string HintAtRoute(std::string_view name) {
  constexpr std::pair<Scope, std::string_view> kRoutes[] = {
      {kInCompletions, "/v1/completions"},   {kInChat, "/v1/chat/completions"},
      {kInTokens, "/inference/v1/generate"}, {kInTokenize, "/tokenize"},
      {kInDetokenize, "/detokenize"},        {kInResponses, "/v1/responses"},
      {kInScoring, "/generative_scoring"},
  };
  for (const auto& [other, route] : kRoutes) {
    const std::optional<KnownField> field = FindCallField(name, other);
    if (field && !IsUnsupported(*field)) {
      return Concat("; it is a field of ", route);
    }
  }
  return "";
}

// Returns the supported fields of a scope; suggesting an unsupported one would
// not help.
std::vector<std::string_view> NamesToMean(Scope scope) {
  std::vector<std::string_view> names = CallFieldNames(scope);
  std::erase_if(names, [scope](std::string_view name) {
    return IsUnsupported(*FindCallField(name, scope));
  });
  return names;
}

// The fields that an unknown name may stand for: the scope's and its related
// objects'.
class ScopeFields {
 public:
  explicit ScopeFields(Scope scope) : here_(NamesToMean(scope)) {
    if (scope == kInTokens) {
      SetThere(kInSampling, " in sampling_params");
    } else if (scope == kInSampling) {
      SetThere(kInTokens, " beside sampling_params");
    } else if (scope == kInTokenize) {
      // It takes the bodies of calls that generate.
      for (const Scope other : {kInCompletions, kInChat}) {
        const auto names = NamesToMean(other);
        here_.insert(here_.end(), names.begin(), names.end());
      }
    }
  }

  FieldPlaces places() const { return {here_, there_, where_}; }

 private:
  void SetThere(Scope scope, std::string_view where) {
    there_ = NamesToMean(scope);
    where_ = where;
  }

  std::vector<std::string_view> here_;
  std::vector<std::string_view> there_;
  std::string_view where_;
};

// True if the name is close to an input of some route.
bool IsMisspeltInput(std::string_view name) {
  constexpr std::string_view kInputs[] = {"prompt", "messages", "token_ids",
                                          "tokens", "query",    "items"};
  return !ClosestName(name, kInputs).empty();
}

// Unescapes a key; most keys have no escapes.
std::string_view PlainKey(std::string_view quoted, std::string* storage) {
  const std::string_view inner = quoted.substr(1, quoted.size() - 2);
  if (inner.find('\\') == inner.npos) return inner;
  return *storage = Unquoted(quoted);
}

}  // namespace

bool IsInput(std::string_view name) {
  const OtherName* const other = FindOtherName(name);
  const std::string_view field = other == nullptr ? name : other->ours;
  return field == "prompt" || field == "prompt_tokens" || field == "messages";
}

void ObjectFields::Add(std::string_view quoted_key, const JsonText& value) {
  std::string storage;
  const std::string_view key = PlainKey(quoted_key, &storage);
  const std::optional<KnownField> field = FindCallField(key, scope_);
  if (!field && IsPassedOver(key, scope_)) return;
  if (!field) return AddUnknown(std::string(key));
  if (place_of_.empty()) place_of_.assign(NumKnownFields(), -1);
  int& place = place_of_[field->number];
  if (place < 0) {
    place = static_cast<int>(fields_.size());
    const std::string_view name = field->call != nullptr ? field->call->name
                                  : field->param->name == key
                                      ? field->param->name
                                      : field->param->alias;
    fields_.push_back({*field, name, value});
  } else {
    fields_[place].value = value;
  }
}

void ObjectFields::AddUnknown(std::string key) {
  if (std::ranges::find(unknown_, key) != unknown_.end()) return;
  if (unknown_.size() == kMaxUnknown) {
    ++num_more_unknown_;
  } else {
    unknown_.push_back(std::move(key));
  }
}

std::vector<ObjectFields::Field> ObjectFields::Take() {
  std::erase_if(fields_,
                [](const Field& field) { return field.value.is_null(); });
  return std::move(fields_);
}

std::string ObjectFields::AboutUnknown(size_t i) const {
  const std::string& name = unknown_[i];
  const bool is_others = FindOtherName(name) != nullptr;
  std::string hint = HintAtObject(name, scope_);
  if (hint.empty()) hint = HintAtTemplate(name, scope_);
  if (hint.empty()) hint = HintAtInput(name, scope_);
  if (hint.empty() && is_others) {
    const ScopeFields fields(scope_);
    hint = HintAtOtherName(name, fields.places()).value_or("");
  }
  if (hint.empty()) hint = HintAtRoute(name);
  if (hint.empty() && !is_others && i < kMaxHints) {
    const ScopeFields fields(scope_);
    hint = HintAtMisspelling(name, fields.places());
  }
  return Concat("unknown field ", ShownInQuotes(name),
                scope_ == kInSampling ? " in sampling_params" : "", hint);
}

absl::Status WarnOfUnknown(const ObjectFields& fields, CallDraft* draft) {
  for (size_t i = 0; i < fields.unknown().size(); ++i) {
    const std::string& name = fields.unknown()[i];
    std::string warning = fields.AboutUnknown(i);
    if (IsInput(name) || IsMisspeltInput(name)) draft->input_warning = warning;
    if (draft->strict) {
      return RefuseField(Shown(name), warning);
    }
    draft->call.warnings.push_back(std::move(warning));
  }
  if (fields.num_more_unknown() > 0) {
    draft->call.warnings.push_back("and more unknown fields");
  }
  return absl::OkStatus();
}

absl::Status MissingField(const std::string& parts, const CallDraft& draft) {
  if (draft.input_warning.empty()) return InvalidField(parts);
  return InvalidField(parts, "; ", draft.input_warning);
}

}  // namespace espalier::openai
