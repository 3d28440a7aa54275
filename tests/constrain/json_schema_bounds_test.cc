#include "constrain/json_schema_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "constrain/json_keywords.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

// The subschemas "a" and "b" of a schema's "$defs", where "one" is 1.
class TwoSchemas {
 public:
  TwoSchemas(const std::string& a, const std::string& b,
             const CompileLimits& limits = {})
      : budget_(limits),
        document_(JsonSchemaDocument::Make(
                      *ParseJson(R"({"$defs": {"one": {"const": 1}, "a": )" +
                                 a + R"(, "b": )" + b + "}}"),
                      JsonSchemaDraft::k2020_12, &budget_)
                      .value()),
        bounds_(document_.get(), &budget_) {}

  JsonSchemaDocument::Id Id(const std::string& name) {
    return document_
        ->Resolve(JsonSchemaDocument::kRoot, "$ref",
                  json::value("#/$defs/" + name))
        .value();
  }
  JsonSchemaBounds& bounds() { return bounds_; }
  absl::StatusOr<bool> AreDisjoint() {
    return bounds_.AreDisjoint(Id("a"), Id("b"));
  }

 private:
  CompileBudget budget_;
  std::unique_ptr<JsonSchemaDocument> document_;
  JsonSchemaBounds bounds_;
};

TEST(JsonSchemaBoundsTest, TypesAndConstantsTellSchemasApart) {
  const std::pair<const char*, const char*> disjoint[] = {
      {R"({"type": "string"})", R"({"type": ["null", "array"]})"},
      {R"({"const": 1})", R"({"enum": [2, "1"]})"},
      {R"({"const": {"a": 1, "b": 2}})", R"({"const": {"a": 1}})"},
      {R"({"$ref": "#/$defs/one"})", R"({"enum": [null, 2]})"},
      {R"({"anyOf": [{"const": 1}, {"const": 2}]})", R"({"enum": [3, 4]})"},
      {R"({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]})",
       R"({"enum": [1, 3]})"},
      {"false", "true"},
  };
  for (const auto& [a, b] : disjoint) {
    EXPECT_TRUE(TwoSchemas(a, b).AreDisjoint().value()) << a;
    EXPECT_TRUE(TwoSchemas(b, a).AreDisjoint().value()) << a;
  }
}

TEST(JsonSchemaBoundsTest, SchemasThatMayShareAValueAreNotDisjoint) {
  const std::pair<const char*, const char*> others[] = {
      {R"({"type": "integer"})", R"({"type": "number"})"},
      {R"({"const": 1})", R"({"const": 1.0})"},
      {R"({"const": {"a": 1, "b": 2}})", R"({"const": {"b": 2, "a": 1}})"},
      {R"({"anyOf": [{"const": 1}, {}]})", R"({"const": 2})"},
      {R"({"$ref": "#/$defs/a"})", R"({"const": 2})"},
      {"{}", "true"},
      // Bounds do not read patterns.
      {R"({"pattern": "^a$"})", R"({"pattern": "^b$"})"},
  };
  for (const auto& [a, b] : others) {
    EXPECT_FALSE(TwoSchemas(a, b).AreDisjoint().value()) << a;
  }
}

TEST(JsonSchemaBoundsTest, ValuesAreThoseOfAllKeywords) {
  TwoSchemas schemas(
      R"({"type": ["string", "null"], "enum": ["b", "a", 1], "not": {}})",
      "{}");
  ASSERT_OK_AND_ASSIGN(const JsonSchemaBounds::Bounds* const bounds,
                       schemas.bounds().Of(schemas.Id("a")));
  EXPECT_EQ(bounds->types, BitOf(JsonType::kString));
  EXPECT_THAT(bounds->values, Optional(ElementsAre("\"a\"", "\"b\"", "1")));
}

// Copies of constants cost more than their texts in the document.
TEST(JsonSchemaBoundsTest, ASpentBudgetIsAnError) {
  std::string constants = "0";
  for (int i = 1; i < 1000; ++i) constants += "," + std::to_string(i);
  TwoSchemas schemas(R"({"enum": [)" + constants + "]}", R"({"const": 1})",
                     {.max_steps = 20'000});
  EXPECT_THAT(schemas.AreDisjoint(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 20000 steps")));
}

}  // namespace
}  // namespace espalier
