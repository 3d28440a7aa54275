// The fields of calls: one table of their scopes and readers. Any other field
// is a param of the request format (request/param_fields.h) or unknown.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/limits.h"
#include "request/param_fields.h"

namespace espalier::openai {

struct CallDraft;  // openai/call_draft.h

// Objects that contain fields.
enum Scope : unsigned {
  kInCompletions = 1,
  kInChat = 2,
  kInTokens = 4,    // tokens API, beside "sampling_params"
  kInSampling = 8,  // tokens API, in "sampling_params"
  kInTokenize = 16,
  kInDetokenize = 32,
  kInResponses = 64,
  kInScoring = 128,
};

struct CallField {
  std::string_view name;
  unsigned scopes;
  // Null for an unsupported field; its value must be null or a neutral one.
  absl::Status (*read)(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft);
  // Neutral values, as JSON; null is always neutral.
  std::string_view neutral[2] = {};
};

std::span<const CallField> CallFields();

// The table entry of an object's member.
struct KnownField {
  const CallField* call = nullptr;
  const ParamField* param = nullptr;  // set if it is not in the table
  size_t number = 0;                  // below NumKnownFields()
};

// Nullopt if no `scope` has it.
std::optional<KnownField> FindCallField(std::string_view name, Scope scope);
size_t NumKnownFields();

// Returns the fields of a scope.
std::vector<std::string_view> CallFieldNames(Scope scope);

// True if `scope` ignores the field without a warning: /tokenize accepts the
// fields of generating calls.
bool IsPassedOver(std::string_view name, Scope scope);

// True if the field applies to conversations and not to text prompts.
bool IsOfMessages(const KnownField& field);

// True if any scope has the field.
bool IsCallField(std::string_view name);

// Reads a field that is not null into `*draft`.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ReadCallField(const KnownField& field, std::string_view name,
                           const JsonText& json, const Limits& limits,
                           CallDraft* draft);

}  // namespace espalier::openai
