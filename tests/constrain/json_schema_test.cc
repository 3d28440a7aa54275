#include "constrain/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/sample_text.h"
#include "tests/constrain/json_evaluator.h"
#include "tests/constrain/json_texts.h"
#include "tests/constrain/random_schemas.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AcceptsValue;
using ::espalier::testing::Cases;
using ::espalier::testing::RandomSchema;
using ::espalier::testing::RandomValue;
using ::espalier::testing::Satisfies;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ByteAutomaton CompiledSchema(const std::string& schema,
                             const JsonSchemaOptions& options = {}) {
  auto automaton = CompileJsonSchema(schema, options);
  EXPECT_TRUE(automaton.ok()) << schema << automaton.status();
  return *std::move(automaton);
}

bool Accepts(const std::string& schema, std::string_view text) {
  return CompiledSchema(schema).Match(text).in_language;
}

std::string ErrorOf(const std::string& schema,
                    const CompileLimits& limits = {}) {
  const auto automaton = CompileJsonSchema(schema, {}, limits);
  return automaton.ok() ? "" : Message(automaton.status());
}

// A double may not keep more digits, so that its value is another one.
bool HasLongNumber(std::string_view text) {
  int num_digits = 0;
  for (const char c : text) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (c != '.') num_digits = is_digit ? num_digits + 1 : 0;
    if (num_digits > 15) return true;
  }
  return false;
}

TEST(JsonSchemaTest, KeysComeInTheOrderOfTheSchemaAndOnce) {
  const std::string schema =
      R"({"type": "object", "properties": {"b": {}, "a": {"type": "null"}}})";
  EXPECT_TRUE(Accepts(schema, R"({"b": 1, "a": null})"));
  EXPECT_TRUE(Accepts(schema, R"({"b":1,"a":null,"c":2})"));
  EXPECT_TRUE(Accepts(schema, R"({"c":2})"));
  EXPECT_FALSE(Accepts(schema, R"({"a": null, "b": 1})"));
  EXPECT_FALSE(Accepts(schema, R"({"b": 1, "b": 1})"));
  EXPECT_FALSE(Accepts(schema, R"({"c": 1, "b": 1})"));
  EXPECT_FALSE(Accepts(schema, R"({"a": 1})"));
}

TEST(JsonSchemaTest, SpacesAreBounded) {
  const std::string schema = R"({"type": "array", "items": {"enum": [1]}})";
  EXPECT_TRUE(Accepts(schema, "[1,1, 1]"));
  EXPECT_FALSE(Accepts(schema, "[1,  1]"));
  EXPECT_FALSE(Accepts(schema, "[ 1]"));
  EXPECT_FALSE(Accepts(schema, "[1 ,1]"));
  const ByteAutomaton compact = CompiledSchema(schema, {.has_spaces = false});
  EXPECT_TRUE(compact.Match("[1,1]").in_language);
  EXPECT_FALSE(compact.Match("[1, 1]").in_language);
}

TEST(JsonSchemaTest, AByteOrderMarkIsSkipped) {
  const std::string schema = R"({"const": 1})";
  EXPECT_EQ(CompiledSchema("\xEF\xBB\xBF" + schema), CompiledSchema(schema));
  EXPECT_FALSE(CompileJsonSchema(schema + "\xEF\xBB\xBF").ok());
}

TEST(JsonSchemaTest, StringsHaveOneSpelling) {
  const std::string schema = R"({"type": "string"})";
  EXPECT_TRUE(Accepts(schema, R"("a/\"\\\b\f\n\r\t\u0000\u001f")"));
  EXPECT_TRUE(Accepts(schema, "\"\xC3\xA9\xF0\x9F\x99\x82\""));
  EXPECT_FALSE(Accepts(schema, R"("\u0041")"));
  EXPECT_FALSE(Accepts(schema, R"("\/")"));
  EXPECT_FALSE(Accepts(schema, "\"\n\""));
  EXPECT_FALSE(Accepts(schema, R"("\u000A")"));
  EXPECT_FALSE(Accepts(schema, "\"\xED\xA0\x80\""));  // a surrogate
}

TEST(JsonSchemaTest, NumbersAreCanonicalWhereTheirValuesCount) {
  EXPECT_TRUE(Accepts(R"({"type": "number"})", "-1.50e+3"));
  EXPECT_FALSE(Accepts(R"({"type": "number"})", "01"));
  EXPECT_TRUE(Accepts(R"({"minimum": 1.5})", "1.5"));
  EXPECT_FALSE(Accepts(R"({"minimum": 1.5})", "1.50"));
  EXPECT_FALSE(Accepts(R"({"minimum": 1.5})", "15e-1"));
  EXPECT_FALSE(Accepts(R"({"minimum": 1.5})", "1.4"));
  EXPECT_TRUE(Accepts(R"({"type": "integer"})", "-10"));
  EXPECT_FALSE(Accepts(R"({"type": "integer"})", "-0"));
  EXPECT_FALSE(Accepts(R"({"type": "integer"})", "1.0"));
  EXPECT_FALSE(Accepts(R"({"not": {"type": "integer"}})", "1.0"));
  EXPECT_FALSE(Accepts(R"({"not": {"type": "integer"}})", "1e1"));
}

TEST(JsonSchemaTest, ReferencesNestBoundedly) {
  const std::string schema = R"({"type": "object", "properties": {
      "next": {"$ref": "#"}}, "additionalProperties": false})";
  EXPECT_TRUE(Accepts(schema, R"({"next":{"next":{"next":{}}}})"));
  EXPECT_FALSE(Accepts(schema, R"({"next":{"next":{"next":{"next":{}}}}})"));
  const ByteAutomaton deep = CompiledSchema(schema, {.max_depth = 4});
  EXPECT_TRUE(
      deep.Match(R"({"next":{"next":{"next":{"next":{}}}}})").in_language);
  // Levels that a schema has itself are not counted.
  EXPECT_TRUE(Accepts(R"({"items": {"items": {"items": {"items":
                          {"items": {}}}}}})",
                      "[[[[[[[[]]]]]]]]"));
  EXPECT_THAT(ErrorOf(R"({"$ref": "#"})"),
              StartsWith("#: references lead back here"));
  EXPECT_THAT(ErrorOf(R"({"required": ["a"], "type": "object",
                          "properties": {"a": {"$ref": "#"}}})"),
              "#: no JSON value satisfies the schema");
}

// A parser takes one of the values of a key that comes twice.
TEST(JsonSchemaTest, OtherKeysComeOnceWhereTheyCount) {
  const std::string counted = R"({"type": "object", "minProperties": 2})";
  EXPECT_TRUE(Accepts(counted, R"({"a":1,"k":2})"));
  EXPECT_FALSE(Accepts(counted, R"({"a":1,"a":2})"));
  const std::string some = R"({"type": "object",
      "not": {"additionalProperties": {"type": "integer"}}})";
  EXPECT_TRUE(Accepts(some, R"({"a":null})"));
  EXPECT_FALSE(Accepts(some, R"({"a":null,"a":1})"));
}

TEST(JsonSchemaTest, ErrorsHaveThePointerOfAKeyword) {
  const struct {
    const char* schema;
    const char* error;
  } cases[] = {
      {R"js({"properties": {"a/b": {"pattern": "(?=x)"}}})js",
       "#/properties/a~1b/pattern: at byte 0: "},
      {R"js({"patternProperties": {"a/(": {}}})js",
       "#/patternProperties/a~1(: at byte 2: "},
      {R"js({"additionalProperties": false, "patternProperties": {"(": {}}})js",
       "#/patternProperties/(: at byte 0: "},
      {R"js({"unevaluatedProperties": false, "patternProperties": {"(": {}}})js",
       "#/patternProperties/(: at byte 0: "},
      {R"({"allOf": [{}, {"minLength": -1}]})",
       "#/allOf/1/minLength: must be a non-negative integer, got -1"},
      {R"({"minLength": 1, "maxLength": -1})",
       "#/maxLength: must be a non-negative integer, got -1"},
      {R"({"type": "strin"})", "#/type: unknown type \"strin\""},
      {R"({"items": {"uniqueItems": true}})", "#/items/uniqueItems: is "},
      {R"({"$ref": "other.json"})", "#/$ref: the schema does not contain"},
      {R"({"$ref": "#/$defs/a"})", "#/$ref: the schema has nothing at"},
      {R"({"$schema": "http://json-schema.org/draft-03/schema#"})",
       "#/$schema: "},
      {R"({"items": [{}]})", "#/items: an array is draft 7's"},
      {R"({"multipleOf": 0})", "#/multipleOf: must be positive, got 0"},
      {R"({"not": {"format": "email"}})", "#: the format \"email\" is "},
      {R"({"anyOf": []})", "#/anyOf: must not be empty"},
      {R"({"minimum": 3, "maximum": 2, "type": "number"})",
       "#: no JSON value satisfies the schema"},
      {"[]", "#: a schema must be an object or a boolean"},
      {R"({"properties": {"a": {"maxLength": 100000}}})",
       "#/properties/a/maxLength: it needs more than 262144 states"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.schema), StartsWith(c.error)) << c.schema;
  }
}

TEST(JsonSchemaTest, ErrorsOfLengthsNameTheKeywords) {
  const struct {
    const char* schema;
    const char* error;
  } cases[] = {
      {R"({"type": "string", "minLength": 5, "maxLength": 3.0})",
       "#: no JSON value satisfies the schema; for example, minLength 5 at # "
       "is above "
       "maxLength 3.0"},
      {R"({"type": "object", "required": ["a"], "properties": {
           "a": {"type": "string", "minLength": 9000000000}}})",
       "#/properties/a/minLength: must be less than 1000000000, got "
       "9000000000"},
      {R"({"type": "object", "required": ["a"], "properties": {
           "a": {"type": "string", "minLength": 90000, "maxLength": 5}}})",
       "#: no JSON value satisfies the schema; for example, minLength 90000 at "
       "#/properties/a is above maxLength 5"},
      {R"({"type": "array", "minItems": 2, "maxItems": 1})",
       "#: no JSON value satisfies the schema; for example, minItems 2 at # is "
       "above "
       "maxItems 1"},
      {R"({"type": "object", "minProperties": 2, "maxProperties": 1})",
       "#: no JSON value satisfies the schema; for example, minProperties 2 at "
       "# is above "
       "maxProperties 1"},
      {R"({"type": "number", "minimum": 2.5, "maximum": 1.5})",
       "#: no JSON value satisfies the schema; for example, minimum 2.5 at # "
       "is above "
       "maximum 1.5"},
      // This one is about strings alone.
      {R"({"minLength": 5, "maxLength": 3, "const": "aaaa"})",
       "#: no JSON value satisfies the schema"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Message(CompileJsonSchemaWithCalls(c.schema).status()), c.error);
    EXPECT_EQ(ErrorOf(c.schema), c.error);
  }
  EXPECT_TRUE(Accepts(R"({"minLength": 5, "maxLength": 3})", "7"));
}

// Keywords that contradict each other elsewhere are not why.
TEST(JsonSchemaTest, ErrorsNameOnlyContradictionsThatMatter) {
  for (const char* const schema : {
           R"({"type": "object", "required": ["b"], "properties": {
               "a": {"type": "string", "minLength": 5, "maxLength": 3},
               "b": false}})",
           R"({"type": "integer", "enum": ["x"],
               "not": {"type": "string", "minLength": 5, "maxLength": 3}})",
           R"({"type": "object", "required": ["b"], "properties": {"b": false},
               "not": {"required": ["a"], "properties": {
                 "a": {"type": "string", "minLength": 5, "maxLength": 3}}}})",
           R"({"type": "integer", "enum": ["x"],
               "if": {"type": "string", "minLength": 5, "maxLength": 3},
               "then": {"type": "string"}})",
           R"({"$schema": "http://json-schema.org/draft-07/schema#",
               "definitions": {"a": false}, "$ref": "#/definitions/a",
               "type": "string", "minLength": 5, "maxLength": 3})",
       }) {
    EXPECT_EQ(ErrorOf(schema), "#: no JSON value satisfies the schema")
        << schema;
  }
  // The second is.
  EXPECT_EQ(ErrorOf(R"({"type": "object", "required": ["b"], "properties": {
                        "a": {"type": "string", "minLength": 5, "maxLength": 3},
                        "b": {"$ref": "#/$defs/b"}}, "$defs": {
                        "b": {"allOf": [{"type": "array", "minItems": 2,
                                         "maxItems": 1}]}}})"),
            "#: no JSON value satisfies the schema; for example, minItems 2 at "
            "#/$defs/b/allOf/0 is above maxItems 1");
}

// A length has one automaton, whichever keywords ask for it.
TEST(JsonSchemaTest, ErrorsNameALengthOfSeveralKeywordsByItself) {
  const auto error = [](const char* a) {
    return Message(CompileJsonSchemaWithCalls(
                       Concat(R"({"type": "object", "properties": {"a": )", a,
                              R"(, "b": {"type": "string", "minLength": 1000000,
                              "pattern": "^a*b?$"}}, "required": ["b"]})"))
                       .status());
  };
  EXPECT_EQ(error(R"({"type": "string", "maxLength": 999999})"),
            "#/properties/b: a length of 1000000 or more: it needs more than "
            "262144 states, the limit");
  EXPECT_EQ(error(R"({"type": "null"})"),
            "#/properties/b: minLength 1000000: it needs more than 262144 "
            "states, the limit");
}

// Some values satisfy the schema, but none has a text.
TEST(JsonSchemaTest, ErrorsSayWhyAValueHasNoText) {
  constexpr std::string_view kUnsatisfied =
      "#: no JSON value satisfies the schema";
  const struct {
    const char* schema;
    std::string_view error;
  } cases[] = {
      {R"({"type": "object", "minProperties": 7})",
       "#: minProperties needs more keys than an object is written with"},
      {R"({"type": "object", "minProperties": 8, "properties": {"a": {}}})",
       "#: minProperties needs more keys"},
      {R"({"type": "object", "minProperties": 2,
           "propertyNames": {"pattern": "^u"}})",
       "#: minProperties needs more keys"},
      {R"({"type": "object", "required": ["a"], "properties": {
           "b": {"type": "object", "minProperties": 9},
           "a": {"type": "object", "minProperties": 7}}})",
       "#/properties/a: minProperties needs more keys"},
      {R"js({"type": "array", "minItems": 2, "prefixItems": [
           {"type": "object", "minProperties": 7},
           {"const": "(?=x)", "format": "regex"}]})js",
       "#/prefixItems/0: minProperties needs more keys"},
      {R"({"type": "string", "format": "email", "pattern": "^\"a b\"@x.com$"})",
       "#: the format \"email\" is enforced by a part of its strings, none of "
       "which satisfies it"},
      // No value satisfies these, with more keys or without.
      {R"({"type": "object", "minProperties": 3, "maxProperties": 1})",
       kUnsatisfied},
      {R"({"type": "object", "minProperties": 9, "maxProperties": 2})",
       kUnsatisfied},
      {R"({"type": "object", "minProperties": 7,
           "additionalProperties": false})",
       kUnsatisfied},
      {R"({"type": "object", "required": ["a"], "properties": {
           "b": {"type": "object", "minProperties": 7}, "a": false}})",
       kUnsatisfied},
      {
          R"({"allOf": [{"type": "object", "minProperties": 7},
                     {"type": "object", "maxProperties": 6}]})",
          kUnsatisfied}};
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.schema), StartsWith(std::string(c.error)))
        << c.schema;
    EXPECT_THAT(Message(CompileJsonSchemaWithCalls(c.schema).status()),
                StartsWith(std::string(c.error)))
        << c.schema;
  }
  CompiledSchema(
      R"({"type": "object", "minProperties": 7, "properties": {"a": {}}})");
}

// The pattern of an incomplete format has a part of its strings. A string that
// it lacks may be one, so it neither has the format nor lacks it.
TEST(JsonSchemaTest, StringsMayHaveAnIncompleteFormat) {
  const auto schema = [](std::string_view format, std::string_view key,
                         std::string names) {
    const std::string_view place = "FORMAT";
    names.replace(names.find(place), place.size(),
                  Concat("{\"format\": \"", format, "\"}"));
    return Concat("{\"type\": \"object\", ", names, ", \"properties\": {\"",
                  key, "\": {}}, \"additionalProperties\": false}");
  };
  const struct {
    const char* format;
    const char* in_pattern;
    const char* beyond_pattern;  // and one of the format
  } formats[] = {
      {"time", "23:59:59Z", "23:59:60Z"},
      {"date-time", "2024-02-29T23:59:59Z", "1998-12-31T23:59:60Z"},
      {"hostname", "example.org", "xn--ihqwcrb4cv8a8dqg056pqjye"},
      {"email", "a@example.org", "\\\"joe bloggs\\\"@example.com"},
  };
  // Each asks that some name, or each, lacks the format.
  const char* const denials[] = {
      R"("not": {"propertyNames": FORMAT})",
      R"("propertyNames": {"not": FORMAT})",
      R"("not": {"not": {"propertyNames": {"not": FORMAT}}})",
      R"("if": {"propertyNames": FORMAT}, "then": {"maxProperties": 0})",
      R"("oneOf": [{"propertyNames": FORMAT}, {"minProperties": 1}])",
  };
  // Each asks that some name, or each, has the format.
  const char* const assertions[] = {
      R"("propertyNames": FORMAT)",
      R"("not": {"not": {"propertyNames": FORMAT}})",
      R"("not": {"propertyNames": {"not": FORMAT}})",
      R"("anyOf": [{"propertyNames": FORMAT}, {"minProperties": 2}])",
  };
  for (const auto& f : formats) {
    const std::string in_text = Concat("{\"", f.in_pattern, "\":1}");
    const std::string beyond_text = Concat("{\"", f.beyond_pattern, "\":1}");
    for (const char* const denial : denials) {
      EXPECT_THAT(ErrorOf(schema(f.format, f.beyond_pattern, denial)),
                  HasSubstr("is enforced by a part of its strings"))
          << f.format << denial;
      const auto inside =
          CompileJsonSchema(schema(f.format, f.in_pattern, denial));
      EXPECT_FALSE(inside.ok() && inside->Match(in_text).in_language)
          << f.format << denial;
    }
    for (const char* const assertion : assertions) {
      EXPECT_TRUE(Accepts(schema(f.format, f.in_pattern, assertion), in_text))
          << f.format << assertion;
      const auto beyond =
          CompileJsonSchema(schema(f.format, f.beyond_pattern, assertion));
      EXPECT_FALSE(beyond.ok() && beyond->Match(beyond_text).in_language)
          << f.format << assertion;
    }
  }
  // A complete format tells all strings.
  EXPECT_TRUE(Accepts(
      schema("date", "2023-02-29", R"("not": {"propertyNames": FORMAT})"),
      R"({"2023-02-29":1})"));
  EXPECT_FALSE(Accepts(
      schema("date", "2024-02-29", R"("propertyNames": {"not": FORMAT})"),
      R"({"2024-02-29":1})"));
  // Another condition may decide about a key.
  EXPECT_TRUE(Accepts(R"({"type": "object", "required": ["a"],
      "maxProperties": 1, "propertyNames":
          {"anyOf": [{"not": {"format": "time"}}, {"const": "a"}]}})",
                      R"({"a":1})"));
}

// RFC 3339 has it, but many readers of dates do not.
TEST(JsonSchemaTest, NoDateIsOfTheYear0) {
  const std::string date = R"({"type": "string", "format": "date"})";
  const std::string time = R"({"type": "string", "format": "date-time"})";
  for (const char* const year : {"0000", "0001", "0010", "0100", "0400"}) {
    const bool is_year = std::string_view(year) != "0000";
    for (const char* const day : {"-01-31", "-02-28", "-04-30"}) {
      EXPECT_EQ(Accepts(date, Concat("\"", year, day, "\"")), is_year);
      EXPECT_EQ(Accepts(time, Concat("\"", year, day, "T00:00:00Z\"")),
                is_year);
    }
  }
  EXPECT_FALSE(Accepts(date, "\"0000-02-29\""));
  EXPECT_TRUE(Accepts(date, "\"0004-02-29\""));
  EXPECT_TRUE(Accepts(date, "\"0400-02-29\""));
  EXPECT_FALSE(Accepts(date, "\"0100-02-29\""));
}

// Constants are told from an incomplete format as other strings are.
TEST(JsonSchemaTest, ConstantsMayHaveAnIncompleteFormat) {
  const char* const refused[] = {
      R"({"const": "23:59:60Z", "not": {"format": "time"}})",
      R"({"enum": ["23:59:60Z", 1], "not": {"format": "time"}})",
      R"({"enum": [{"a": "23:59:60Z"}],
          "properties": {"a": {"not": {"format": "time"}}}})",
      R"({"enum": [{"23:59:60Z": 1}],
          "propertyNames": {"not": {"format": "time"}}})",
      R"({"const": {"23:59:60Z": 1},
          "not": {"propertyNames": {"format": "time"}}})",
      R"({"type": "object", "required": ["23:59:60Z"],
          "not": {"propertyNames": {"format": "time"}}})",
      R"({"type": "object", "dependentRequired": {"23:59:60Z": ["a"]},
          "not": {"propertyNames": {"format": "time"}}})",
      R"({"type": "array", "items": {"enum": ["23:59:60Z"]},
          "not": {"contains": {"format": "time"}}})",
      R"({"type": "object", "properties": {"23:59:60Z": {}},
          "unevaluatedProperties": false,
          "not": {"propertyNames": {"format": "time"}}})",
  };
  for (const char* const schema : refused) {
    EXPECT_THAT(ErrorOf(schema),
                HasSubstr("is enforced by a part of its strings"))
        << schema;
  }
  EXPECT_TRUE(Accepts(R"({"enum": ["23:59:59Z", "x"], "format": "time"})",
                      R"("23:59:59Z")"));
  EXPECT_FALSE(
      Accepts(R"({"enum": ["23:59:59Z", "x"], "format": "time"})", R"("x")"));
  EXPECT_TRUE(Accepts(R"({"enum": [{"23:59:59Z": 1}],
                          "propertyNames": {"format": "time"}})",
                      R"({"23:59:59Z":1})"));
}

// Draft 7 ignores what is beside "$ref", and has tuples in "items".
TEST(JsonSchemaTest, TheDraftIsThatOfTheSchema) {
  const std::string draft7 =
      R"("$schema": "http://json-schema.org/draft-07/schema#")";
  const std::string beside =
      R"("$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": {}})";
  EXPECT_TRUE(Accepts("{" + draft7 + ", " + beside + "}", "\"ab\""));
  EXPECT_FALSE(Accepts("{" + beside + "}", "\"ab\""));
  EXPECT_FALSE(Accepts("{" + draft7 + R"(, "items": [{"const": 1}]})", "[2]"));
  // In draft 4 a flag excludes a bound, and "id" names a schema.
  const std::string draft4 =
      R"("$schema": "http://json-schema.org/draft-04/schema#")";
  const std::string flag = R"(, "minimum": 1, "exclusiveMinimum": true})";
  EXPECT_FALSE(Accepts("{" + draft4 + flag, "1"));
  EXPECT_TRUE(Accepts("{" + draft4 + flag, "2"));
  const std::string maximum =
      R"(, "maximum": 1, "exclusiveMaximum": false, "minimum": 1})";
  EXPECT_TRUE(Accepts("{" + draft4 + maximum, "1"));
  EXPECT_FALSE(Accepts("{" + draft4 + maximum, "2"));
  EXPECT_FALSE(Accepts("{" + draft4 + R"(, "items": {"$ref": "a#"},
      "definitions": {"a": {"id": "a", "type": "null"}}})",
                       "[1]"));
  EXPECT_THAT(ErrorOf("{" + draft4 + R"(, "const": 1})"),
              StartsWith("#/const: is of a later draft"));
  // Draft 2020-12 has "dependencies" for compatibility, and "additionalItems"
  // without an array as "items", where no draft enforces it.
  const std::string dependencies = R"({"dependencies":
      {"a": ["b"], "c": {"required": ["d"]}, "e": false}})";
  for (const auto& [text, is_valid] :
       std::map<std::string, bool>{{R"({"a":1})", false},
                                   {R"({"a":1,"b":1})", true},
                                   {R"({"c":1})", false},
                                   {R"({"c":1,"d":1})", true},
                                   {R"({"e":1})", false},
                                   {"[]", true}}) {
    EXPECT_EQ(Accepts(dependencies, text), is_valid) << text;
  }
  // Its subschemas evaluate members, as those of "dependentSchemas" do.
  const std::string evaluated = R"({"properties": {"a": {}},
      "dependencies": {"a": {"properties": {"b": {}}}, "b": ["a"]},
      "unevaluatedProperties": false})";
  EXPECT_TRUE(Accepts(evaluated, R"({"a":1,"b":1})"));
  EXPECT_FALSE(Accepts(evaluated, R"({"a":1,"c":1})"));
  EXPECT_TRUE(
      Accepts(R"({"items": {"type": "null"}, "additionalItems": false})",
              "[null,null]"));
}

// Each of 40 schemas refers to the next one twice.
TEST(JsonSchemaTest, RepeatedReferencesAreEvaluatedOnce) {
  json::object defs;
  for (int i = 0; i < 40; ++i) {
    const json::value next = {{"$ref", "#/$defs/a" + std::to_string(i + 1)}};
    defs["a" + std::to_string(i)] = {{"anyOf", json::array{next, next}}};
  }
  defs["a40"] = {{"properties", {{"x", json::object()}}}};
  const auto automaton =
      CompileJsonSchema(json::object{{"type", "object"},
                                     {"$ref", "#/$defs/a0"},
                                     {"unevaluatedProperties", false},
                                     {"$defs", defs}});
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  EXPECT_TRUE(automaton->Match(R"({"x":1})").in_language);
  EXPECT_FALSE(automaton->Match(R"({"y":1})").in_language);
}

// The texts of a language are of values that satisfy its schema, and each small
// value that does has a text.
TEST(JsonSchemaTest, RandomSchemasHaveTheTextsOfTheirValues) {
  int num_compiled = 0;
  int num_texts = 0;
  int num_accepted = 0;
  int num_strict = 0;
  for (int i = 0; i < Cases(400, 40); ++i) {
    std::mt19937_64 random(i);
    const json::value schema = RandomSchema(8, random);
    SCOPED_TRACE(WriteJson(schema));
    const auto automaton =
        CompileJsonSchema(schema, {.max_depth = 2},
                          {.max_states = 50'000, .max_steps = 10'000'000});
    const bool is_empty =
        !automaton.ok() &&
        Message(automaton.status())
            .starts_with("#: no JSON value satisfies the schema");
    if (!automaton.ok() && !is_empty) continue;
    ++num_compiled;
    for (int t = 0; t < 20 && !is_empty; ++t) {
      const std::string text = SampleText(*automaton, 5 * t, &random);
      if (HasLongNumber(text)) continue;
      const auto value = ParseJson(text);
      ASSERT_TRUE(value.ok()) << text;
      ++num_texts;
      EXPECT_TRUE(Satisfies(*value, schema)) << text;
    }
    for (int v = 0; v < 40; ++v) {
      const json::value value = RandomValue(2, random);
      const bool accepts = !is_empty && AcceptsValue(*automaton, value);
      if (accepts) ++num_accepted;
      EXPECT_TRUE(!accepts || Satisfies(value, schema)) << WriteJson(value);
      if (!accepts && Satisfies(value, schema)) ++num_strict;
    }
  }
  EXPECT_GT(num_compiled, Cases(400, 40) * 9 / 10);
  EXPECT_GT(num_texts, 10 * num_compiled);
  EXPECT_GT(num_accepted, 5 * num_compiled);
  // Some have keys that must ascend, and do not.
  EXPECT_LT(num_strict, num_accepted / 20);
}

// Finds the texts of a language with calls.
std::unique_ptr<PushdownConfigurations> CalledTexts(GrammarLanguage language) {
  const auto automaton = std::make_shared<const PushdownAutomaton>(
      std::get<PushdownAutomaton>(std::move(language)));
  return std::make_unique<PushdownConfigurations>(automaton,
                                                  automaton->bytes());
}

TEST(JsonSchemaTest, ReferencesThatLeadBackAreCalled) {
  const std::string list = R"({"type": "object", "properties": {
      "next": {"$ref": "#"}}, "additionalProperties": false})";
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += R"({"next":)";
    return text + "{}" + std::string(depth, '}');
  };
  ASSERT_OK_AND_ASSIGN(GrammarLanguage language,
                       CompileJsonSchemaWithCalls(list));
  const auto texts = CalledTexts(std::move(language));
  EXPECT_TRUE(texts->Match(nested(64)).in_language);
  EXPECT_FALSE(texts->Match(nested(65)).in_language);
  EXPECT_FALSE(texts->Match(R"({"next":{"last":{}}})").in_language);
  // As the unrolled language of so many levels.
  for (int depth = 0; depth <= 3; ++depth) {
    for (const std::string& schema :
         {list, std::string(R"({"type": ["array", "null"], "maxItems": 2,
                                "items": {"$ref": "#"}})"),
          std::string(R"({"anyOf": [{"type": "integer", "minimum": 5}, {
              "type": "object", "properties": {"a": {"$ref": "#"},
              "b": {"not": {"$ref": "#"}, "type": "boolean"}},
              "required": ["a"], "additionalProperties": false}]})")}) {
      const ByteAutomaton unrolled =
          CompiledSchema(schema, {.max_depth = depth});
      ASSERT_OK_AND_ASSIGN(
          GrammarLanguage limited,
          CompileJsonSchemaWithCalls(schema, {.max_calls = depth}));
      const auto called = CalledTexts(std::move(limited));
      std::mt19937_64 random(depth);
      for (int i = 0; i < 100; ++i) {
        const std::string text = SampleText(unrolled, i, &random);
        EXPECT_TRUE(called->Match(text).in_language) << text;
        const auto other = SampleText(*called, i, &random);
        ASSERT_TRUE(other.has_value());
        EXPECT_TRUE(unrolled.Match(*other).in_language) << *other;
      }
    }
  }
  // A value of {} nests in copies, without calls.
  ASSERT_OK_AND_ASSIGN(const GrammarLanguage plain,
                       CompileJsonSchemaWithCalls(R"({"items": {}})"));
  EXPECT_TRUE(std::holds_alternative<ByteAutomaton>(plain));
  EXPECT_THAT(Message(CompileJsonSchemaWithCalls(
                          R"({"required": ["a"], "type": "object",
                      "properties": {"a": {"$ref": "#"}}})")
                          .status()),
              "#: no JSON value satisfies the schema");
  EXPECT_THAT(Message(CompileJsonSchemaWithCalls(
                          R"js({"items": {"$ref": "#"}, "pattern": "(?=a)"})js")
                          .status()),
              StartsWith("#/pattern: at byte 0"));
}

TEST(JsonSchemaTest, RandomSchemasWithCallsHaveTheTextsOfTheirValues) {
  int num_called = 0;
  int num_texts = 0;
  for (int i = 0; i < Cases(200, 30); ++i) {
    std::mt19937_64 random(i);
    const json::value schema = RandomSchema(8, random);
    SCOPED_TRACE(WriteJson(schema));
    const CompileLimits limits = {.max_states = 50'000,
                                  .max_steps = 10'000'000};
    auto language = CompileJsonSchemaWithCalls(
        WriteJson(schema),
        {.calls_any_value = true, .calls_repeated_values = i % 2 == 0}, limits);
    const auto unrolled = CompileJsonSchema(schema, {.max_depth = 2}, limits);
    if (!language.ok() ||
        !std::holds_alternative<PushdownAutomaton>(*language)) {
      continue;
    }
    ++num_called;
    const auto texts = CalledTexts(*std::move(language));
    for (int t = 0; t < 20; ++t) {
      const auto text = SampleText(*texts, 5 * t, &random);
      ASSERT_TRUE(text.has_value());
      // Copies of a few levels are among them.
      if (unrolled.ok()) {
        const std::string copied = SampleText(*unrolled, 5 * t, &random);
        EXPECT_TRUE(texts->Match(copied).in_language) << copied;
      }
      if (HasLongNumber(*text)) continue;
      const auto value = ParseJson(*text);
      if (!value.ok()) continue;  // nests deeper than the parser reads
      ++num_texts;
      EXPECT_TRUE(Satisfies(*value, schema)) << *text;
    }
  }
  EXPECT_GT(num_called, Cases(200, 30) / 3);
  EXPECT_GT(num_texts, 10 * num_called);
}

TEST(JsonSchemaTest, WhatIsTooLargeUnrolledIsCalled) {
  const std::string schema = R"({"type": "array", "maxItems": 300,
      "items": {"type": "object", "properties": {"a": {}, "b": {}, "c": {}},
                "required": ["a"]}})";
  EXPECT_EQ(ErrorOf(schema),
            "#/items: it needs more than 50000000 steps to compile, the limit");
  ASSERT_OK_AND_ASSIGN(GrammarLanguage language,
                       CompileJsonSchemaWithCalls(schema));
  const auto texts = CalledTexts(std::move(language));
  for (const int num_items : {0, 1, 300, 301}) {
    std::string items;
    for (int i = 0; i < num_items; ++i) {
      items += Concat(i > 0 ? "," : "", R"({"a":[{"b":)", i, R"(}],"d":null})");
    }
    EXPECT_EQ(texts->Match("[" + items + "]").in_language, num_items <= 300);
  }
  EXPECT_FALSE(texts->Match(R"([{"b":1}])").in_language);
  EXPECT_FALSE(texts->Match(R"([{"a":1,"a":1}])").in_language);
}

TEST(JsonSchemaTest, TheSameSchemaHasTheSameAutomaton) {
  std::mt19937_64 random(5);
  for (int i = 0; i < Cases(20, 3); ++i) {
    const json::value schema = RandomSchema(6, random);
    const auto once = CompileJsonSchema(schema);
    const auto again = CompileJsonSchema(schema);
    ASSERT_EQ(once.ok(), again.ok());
    if (once.ok()) {
      EXPECT_EQ(*once, *again);
      // The complement of the complement.
      const auto twice =
          CompileJsonSchema(json::object{{"not", {{"not", schema}}}});
      EXPECT_TRUE(twice.ok() && *twice == *once) << WriteJson(schema);
    } else {
      EXPECT_EQ(once.status(), again.status());
    }
  }
}

// Each ends in an error that names a limit.
// The values of {} are made once, for all schemas. With limits that may not
// suffice for them, each compilation makes its own.
TEST(JsonSchemaTest, SharedValuesAreThoseThatAreMadeAgain) {
  constexpr CompileLimits kOwn = {.max_states = CompileLimits().max_states - 1};
  for (const bool has_spaces : {false, true}) {
    for (int depth = 0; depth <= 4; ++depth) {
      for (const std::string schema :
           {"{}", R"({"items": {}})", R"({"properties": {"a": {}, "b": {}}})",
            R"({"contains": {"type": "number"}})"}) {
        SCOPED_TRACE(Concat(schema, " ", has_spaces, " ", depth));
        const JsonSchemaOptions options = {.has_spaces = has_spaces,
                                           .max_depth = depth};
        const auto shared = CompileJsonSchema(schema, options);
        const auto own = CompileJsonSchema(schema, options, kOwn);
        ASSERT_TRUE(shared.ok() && own.ok()) << shared.status() << own.status();
        EXPECT_TRUE(*shared == *own);
      }
    }
  }
}

// So an outcome does not depend on what was compiled before.
TEST(JsonSchemaTest, SharedValuesTakeStepsInEachCompilation) {
  CompiledSchema(R"({"items": {}})");
  EXPECT_EQ(ErrorOf(R"({"items": {}})", {.max_steps = 600'000}),
            "#: it needs more than 600000 steps to compile, the limit");
}

TEST(JsonSchemaTest, HostileSchemasEndInErrors) {
  const auto list = [](int num, const auto& item) {
    json::array items;
    for (int i = 0; i < num; ++i) items.push_back(item(i));
    return items;
  };
  json::object properties;
  for (int i = 0; i < 12; ++i) {
    properties["k" + std::to_string(i)] = {{"$ref", "#"}};
  }
  json::object chain;
  for (int i = 0; i < 5'000; ++i) {
    chain["a" + std::to_string(i)] = {
        {"$ref", "#/$defs/a" + std::to_string(i + 1)}};
  }
  const std::vector<json::value> schemas = {
      {{"pattern", "(a|b)*a(a|b){20}"}},
      {{"maxLength", 1'000'000'000}},
      {{"minItems", 1'000'000'000}},
      {{"maxProperties", 100'000}},
      {{"multipleOf", 99'991}},
      {{"properties", properties}},
      {{"$ref", "#/$defs/a0"}, {"$defs", chain}},
      {{"enum",
        list(300'000,
             [](int i) { return json::value(std::to_string(i * 7919LL)); })}},
      {{"enum", list(20'000,
                     [](int i) {
                       return json::value{{"a", i}};
                     })}},
      {{"type", "array"},
       {"anyOf", list(300,
                      [&](int i) {
                        return json::value{
                            {"items", {{"enum", list(100, [&](int j) {
                                          return json::value(1000 * i + j);
                                        })}}}};
                      })}},
      {{"allOf", list(5,
                      [](int i) {
                        return json::value{{"multipleOf", 97 + 2 * i}};
                      })}},
      {{"oneOf",
        list(12,
             [](int i) {
               json::object inner;
               for (int j = 0; j < 6; ++j) {
                 inner["k" + std::to_string(j)] = {{"multipleOf", i + 2}};
               }
               return json::value{{"properties", inner}};
             })}},
  };
  for (const json::value& schema : schemas) {
    const auto automaton = CompileJsonSchema(
        schema, {}, {.max_states = 20'000, .max_steps = 5'000'000});
    ASSERT_FALSE(automaton.ok()) << Shown(&schema);
    EXPECT_THAT(Message(automaton.status()), HasSubstr("more than"))
        << Shown(&schema);
    EXPECT_THAT(Message(automaton.status()), StartsWith("#"));
  }
}

}  // namespace
}  // namespace espalier
