#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/call_fields.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

// Params that stand beside "sampling_params", too: what is about the request,
// not about its tokens.
bool IsBesideSampling(std::string_view param) {
  return param == "priority" || param == "cache_salt" || param == "tenant" ||
         param == "deadline_ms" || param == "prefix_cache";
}

// Params that say what the decoder with an encoder begins with, and how much
// room a prompt that is truncated leaves.
bool IsOfPrompt(std::string_view param) {
  return param == "decoder_prompt" || param == "decoder_prompt_tokens" ||
         param == "forced_bos_token_id" || param == "max_new_tokens";
}

// Params that say something about scores of given tokens.
bool IsOfScoring(std::string_view param) {
  return IsBesideSampling(param) || param == "decoder_prompt" ||
         param == "decoder_prompt_tokens";
}

bool HasParam(Scope scope, const ParamField& field) {
  if (scope == kInScoring) return IsOfScoring(field.name);
  if (scope == kInTokenize) return IsOfPrompt(field.name);
  if (scope == kInDetokenize) return false;
  return scope != kInTokens || IsBesideSampling(field.name);
}

constexpr Scope kScopes[] = {kInCompletions, kInChat,     kInTokens,
                             kInSampling,    kInTokenize, kInDetokenize,
                             kInResponses,   kInScoring};

// Fields by name and scope, those of the table before params.
class FieldIndex {
 public:
  FieldIndex() {
    for (const Scope scope : kScopes) {
      auto& fields = fields_[scope];
      for (const CallField& field : CallFields()) {
        const size_t number = &field - CallFields().data();
        if (field.scopes & scope) {
          fields.emplace(field.name, KnownField{&field, nullptr, number});
        }
      }
      AddParams(scope);
    }
  }

  const KnownField* Find(std::string_view name, Scope scope) const {
    const auto& fields = fields_.at(scope);
    const auto found = fields.find(name);
    return found == fields.end() ? nullptr : &found->second;
  }

  std::vector<std::string_view> Names(Scope scope) const {
    std::vector<std::string_view> names;
    for (const auto& [name, field] : fields_.at(scope)) names.push_back(name);
    std::ranges::sort(names);
    return names;
  }

 private:
  // Each name is a field of its own, as one may stand beside the other.
  void AddParams(Scope scope) {
    size_t number = CallFields().size();
    for (const ParamField& field : ParamFields()) {
      for (const std::string_view name : {field.name, field.alias}) {
        const KnownField known = {nullptr, &field, number++};
        if (!name.empty() && HasParam(scope, field)) {
          fields_[scope].emplace(name, known);
        }
      }
    }
  }

  std::unordered_map<unsigned, std::unordered_map<std::string_view, KnownField>>
      fields_;
};

const FieldIndex& Index() {
  static const FieldIndex* const index = new FieldIndex;
  return *index;
}

bool IsNeutral(const CallField& field, const JsonText& json) {
  const absl::StatusOr<json::value> value = ReadAny(field.name, json);
  if (!value.ok()) return false;
  return std::ranges::any_of(field.neutral, [&](std::string_view neutral) {
    return !neutral.empty() && *value == ParseChecked(neutral);
  });
}

absl::Status RefuseUnlessNeutral(const CallField& field, const JsonText& json,
                                 const Limits& limits) {
  RETURN_IF_ERROR(CheckElements(field.name, json, limits));
  if (IsNeutral(field, json)) return absl::OkStatus();
  std::string wanted = "null";
  for (const std::string_view neutral : field.neutral) {
    if (!neutral.empty()) wanted += Concat(" or ", neutral);
  }
  return InvalidField(FieldName{field.name}, " is not supported: it must be ",
                      wanted, Got(Shown(json.text)));
}

}  // namespace

size_t NumKnownFields() {
  return CallFields().size() + 2 * ParamFields().size();
}

std::optional<KnownField> FindCallField(std::string_view name, Scope scope) {
  const KnownField* const field = Index().Find(name, scope);
  return field == nullptr ? std::nullopt : std::optional(*field);
}

std::vector<std::string_view> CallFieldNames(Scope scope) {
  return Index().Names(scope);
}

bool IsPassedOver(std::string_view name, Scope scope) {
  if (scope != kInTokenize || Index().Find(name, scope) != nullptr) {
    return false;
  }
  return Index().Find(name, kInCompletions) != nullptr ||
         Index().Find(name, kInChat) != nullptr;
}

bool IsOfMessages(const KnownField& field) {
  constexpr unsigned kTexts = kInCompletions | kInChat;
  return field.call != nullptr && (field.call->scopes & kTexts) == kInChat;
}

bool IsCallField(std::string_view name) {
  if (name == "sampling_params") return true;
  return std::ranges::any_of(kScopes, [&](Scope scope) {
    return Index().Find(name, scope) != nullptr;
  });
}

absl::Status ReadCallField(const KnownField& field, std::string_view name,
                           const JsonText& json, const Limits& limits,
                           CallDraft* draft) {
  if (field.param != nullptr) {
    RETURN_IF_ERROR(CheckElements(name, json, limits));
    return ReadGivenParam(*field.param, name, json, draft);
  }
  if (field.call->read == nullptr) {
    return RefuseUnlessNeutral(*field.call, json, limits);
  }
  return field.call->read(field.call->name, json, limits, draft);
}

}  // namespace espalier::openai
