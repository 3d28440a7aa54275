// ConstraintParams: the language of texts that the output of a request is
// restricted to, or the catalogue of items (docs/constraints.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/shared_list.h"
#include "request/text_or_tokens.h"

namespace espalier {

// Most strings of must_contain: a state of a text tells which it has contained.
inline constexpr int kMaxContainedWords = 8;

// Exactly one of the languages is set; or none, if there is must_contain.
struct ConstraintParams {
  std::optional<std::string> regex = {};               // it matches as a whole
  std::optional<SharedList<std::string>> choice = {};  // it is one of these
  // A JSON Schema: the text is JSON of a value that satisfies it
  // (constrain/json_schema.h).
  std::optional<std::string> json_schema = {};
  // A grammar in GBNF: the text is one of its rule "root"
  // (constrain/gbnf_language.h).
  std::optional<std::string> grammar = {};
  // The text is calls of some functions in a format of models: a JSON object
  // (request/tool_call_language.h).
  std::optional<std::string> tool_calls = {};
  // The output is an item of the catalogue of this name
  // (constrain/item_catalogues.h), but for items that equal one of `exclude`,
  // and those that begin with one of `exclude_prefixes`. A text is the item
  // with its tokens.
  std::optional<std::string> items = {};
  SharedList<TextOrTokens> exclude = {};
  SharedList<std::vector<int64_t>> exclude_prefixes = {};
  // The text contains each of these. Not with tool_calls or items.
  SharedList<std::string> must_contain = {};
  // With a schema: one space may follow each "," and ":"; or in place of this,
  // if set, a regular expression of the white space between the parts of a
  // text; and objects have no key but those of the schema
  // (constrain/json_schema.h).
  bool has_spaces = true;
  std::optional<std::string> whitespace = {};
  bool disable_additional_properties = false;

  friend bool operator==(const ConstraintParams&,
                         const ConstraintParams&) = default;
};

}  // namespace espalier
