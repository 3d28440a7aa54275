// Constraints of languages that recur or count, for tests of their masks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "constrain/gbnf_language.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_constraint.h"
#include "tests/constrain/random_grammars.h"
#include "tests/constrain/random_schemas.h"

namespace espalier::testing {

// Grammars and schemas whose positions are one state and one stack.
inline const std::vector<std::string>& PushdownGrammars() {
  static const auto* const grammars = new std::vector<std::string>{
      "root ::= \"(\" root \")\" root | \"x\"?",
      "root ::= \"[\" (root (\",\" root)*)? \"]\" | [ab]+",
      "root ::= root \"+\" t | t\nt ::= \"(\" root \")\" | \"a\" \"b\"?",
      "root ::= v\nv ::= \"{\" (k (\",\" k)*)? \"}\" | \"[\" (v (\",\" v)*)? "
      "\"]\" | s | [0-9]+\nk ::= s \":\" v\ns ::= \"\\\"\" [a-c]* \"\\\"\""};
  return *grammars;
}
inline const std::vector<std::string>& PushdownSchemas() {
  static const auto* const schemas = new std::vector<std::string>{
      R"({"type": "array", "items": {"$ref": "#"}})",
      R"({"type": "object", "required": ["a"], "additionalProperties": false,
          "properties": {"a": {"type": "integer"},
                         "b": {"type": "array", "items": {"$ref": "#"}}}})",
      R"({"type": "string", "maxLength": 40})",
      R"({"type": "string", "minLength": 20})",
      R"({"type": "object", "properties": {"a": {"type": "string",
          "maxLength": 2147483647}, "b": {"type": "string", "minLength": 18,
          "maxLength": 50, "pattern": "^(ab|c)*$"}}})",
      R"({"type": "array", "items": {"type": "array", "maxItems": 2,
          "items": {"anyOf": [{"$ref": "#"}, {"type": "string",
          "maxLength": 25}]}}})",
      R"({"$defs": {"t": {"type": ["object", "null"],
          "additionalProperties": false, "properties": {"l": {"$ref":
          "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"})"};
  return *schemas;
}

// Each byte is a token, and characters, parts of some, and pieces of syntax.
// Tokens 0 and 1 add no text.
inline std::shared_ptr<const TokenVocabulary> RandomSyntaxVocabulary(
    int size, std::mt19937_64& random) {
  std::vector<std::string> inside = {"", ""};
  for (int byte = 0; byte < 256; ++byte) {
    inside.emplace_back(1, static_cast<char>(byte));
  }
  const std::vector<std::string> pieces = {
      "a", "b", "(", ")",  "[",       "]",   "{",  "}",    ",", ":", "\"",
      "a", "x", "+", "\\", "{\"a\":", "\":", "[[", "null", "1", "é", "\xC3"};
  while (static_cast<int>(inside.size()) < size) {
    std::string& text = inside.emplace_back();
    const int max_pieces = random() % 16 == 0 ? 40 : 5;
    const bool is_letters = random() % 2 == 0;
    for (int left = static_cast<int>(random() % max_pieces); left >= 0;
         --left) {
      text +=
          is_letters ? pieces[random() % 2] : pieces[random() % pieces.size()];
    }
  }
  inside.resize(size);
  if (random() % 2 == 0) {
    return std::make_shared<const TokenVocabulary>(inside);
  }
  std::vector<std::string> first = inside;
  for (int token = 2; token < size; ++token) {
    if (random() % 4 != 0) continue;
    first[token] = random() % 2 == 0 ? "" : inside[token].substr(1);
  }
  return std::make_shared<const TokenVocabulary>(inside, first,
                                                 random() % 2 == 0);
}

// Returns null if the language is a finite automaton, cannot be compiled, or
// has no text that tokens can spell.
inline std::shared_ptr<const PushdownConstraint> PushdownConstraintOf(
    absl::StatusOr<GrammarLanguage> language,
    std::shared_ptr<const TokenVocabulary> vocabulary,
    std::mt19937_64& random) {
  if (!language.ok()) return nullptr;
  auto* const automaton = std::get_if<PushdownAutomaton>(&*language);
  if (automaton == nullptr) return nullptr;
  std::vector<TokenId> end_ids;
  if (random() % 4 != 0) end_ids.push_back(0);
  if (random() % 2 == 0) end_ids.push_back(1);
  auto constraint = PushdownConstraint::Make(
      std::make_shared<const PushdownAutomaton>(std::move(*automaton)),
      std::move(vocabulary),
      {.end_ids = std::move(end_ids), .opens_text = random() % 4 != 0});
  return constraint.ok() ? *std::move(constraint) : nullptr;
}

// Returns a constraint that may have no tables, or null.
inline std::shared_ptr<const PushdownConstraint> RandomPushdownConstraint(
    const std::shared_ptr<const TokenVocabulary>& vocabulary,
    std::mt19937_64& random) {
  const auto one_of = [&](const std::vector<std::string>& all) {
    return all[random() % all.size()];
  };
  const int max_depth = random() % 2 == 0 ? 64 : 2 + random() % 4;
  JsonSchemaOptions options = {.has_spaces = random() % 2 == 0,
                               .max_calls = max_depth,
                               .calls_any_value = random() % 2 == 0,
                               .calls_repeated_values = random() % 2 == 0,
                               .max_unrolled_length = 16,
                               .max_unrolled_least = 16,
                               .max_unrolled_lengths = 0};
  switch (random() % 4) {
    case 0:
      return PushdownConstraintOf(
          CompileGbnf(one_of(PushdownGrammars()), {.max_depth = max_depth}),
          vocabulary, random);
    case 1:
      return PushdownConstraintOf(
          CompileGbnf(RandomGrammar(random), {.max_depth = max_depth}),
          vocabulary, random);
    case 2:
      return PushdownConstraintOf(
          CompileJsonSchemaWithCalls(WriteJson(RandomSchema(6, random)),
                                     options),
          vocabulary, random);
    default:
      return PushdownConstraintOf(
          CompileJsonSchemaWithCalls(one_of(PushdownSchemas()), options),
          vocabulary, random);
  }
}

}  // namespace espalier::testing
