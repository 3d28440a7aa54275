// The fields of calls: one table that says where each may stand and how it is
// read. What is not in it is one of the params of the request format
// (request/json/param_fields.h), or not known.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/limits.h"
#include "request/json/param_fields.h"

namespace espalier::openai {

struct CallDraft;  // openai/call_draft.h

// Objects that fields stand in.
enum Scope : unsigned {
  kInCompletions = 1,
  kInChat = 2,
  kInTokens = 4,    // of the tokens' API, beside "sampling_params"
  kInSampling = 8,  // of its "sampling_params"
  kInTokenize = 16,
  kInDetokenize = 32,
  kInResponses = 64,
};

struct CallField {
  std::string_view name;
  unsigned scopes;
  // Null of one that has no meaning here: then it must have a value that has
  // none either.
  absl::Status (*read)(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft);
  // Such values, as JSON; null is one always.
  std::string_view neutral[2] = {};
};

std::span<const CallField> CallFields();

// What a member of an object is.
struct KnownField {
  const CallField* call = nullptr;
  const ParamField* param = nullptr;  // of a field that is not in the table
  size_t number = 0;                  // below NumKnownFields()
};

// Nullopt if no `scope` has it.
std::optional<KnownField> FindCallField(std::string_view name, Scope scope);
size_t NumKnownFields();

// Those that a `scope` has.
std::vector<std::string_view> CallFieldNames(Scope scope);

// Whether it is of a call that generates, and says nothing of what `scope` is
// about: /tokenize takes the bodies of such calls.
bool IsPassedOver(std::string_view name, Scope scope);

// Whether it is of conversations, and of no prompt that is a text.
bool IsOfMessages(const KnownField& field);

// Whether any scope has it.
bool IsCallField(std::string_view name);

// Reads a field that is not null into `*draft`.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ReadCallField(const KnownField& field, std::string_view name,
                           const JsonText& json, const Limits& limits,
                           CallDraft* draft);

}  // namespace espalier::openai
