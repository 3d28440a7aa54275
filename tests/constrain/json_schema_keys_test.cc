#include "constrain/json_schema_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "constrain/compile_budget.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> KeysOf(const std::string& schema) {
  CompileBudget budget;
  const auto document = JsonSchemaDocument::Make(
      *ParseJson(schema), JsonSchemaDraft::k2020_12, &budget);
  EXPECT_OK(document);
  JsonAssertions assertions(&budget);
  JsonSchemaKeys keys(document->get(), &assertions);
  const auto numbers = keys.Of(JsonSchemaDocument::kRoot);
  EXPECT_OK(numbers);
  std::vector<std::string> names;
  for (const int64_t key : **numbers) names.push_back(assertions.KeyOf(key));
  return names;
}

TEST(JsonSchemaKeysTest, PropertiesComeFirstAndRequiredLast) {
  EXPECT_THAT(KeysOf(R"({"required": ["r", "b"], "const": {"c": 1},
                 "dependentRequired": {"d": ["e"]},
                 "properties": {"b": {}, "a": {"properties": {"inner": {}}}}})"),
              ElementsAre("b", "a", "c", "d", "e", "r"));
}

TEST(JsonSchemaKeysTest, SubschemasOfTheSameValueNameKeysToo) {
  EXPECT_THAT(
      KeysOf(R"({"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/x"}],
                 "if": {"required": ["c"]}, "not": {"required": ["d"]},
                 "items": {"properties": {"item": {}}},
                 "$defs": {"x": {"properties": {"b": {}, "a": {}}}}})"),
      ElementsAre("a", "b", "c", "d"));
}

TEST(JsonSchemaKeysTest, SchemasThatReferToThemselvesEnd) {
  EXPECT_THAT(KeysOf(R"({"properties": {"a": {}}, "allOf": [{"$ref": "#"}]})"),
              ElementsAre("a"));
  EXPECT_THAT(KeysOf("true"), IsEmpty());
}

}  // namespace
}  // namespace espalier
