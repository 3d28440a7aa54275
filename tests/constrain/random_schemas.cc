#include "tests/constrain/random_schemas.h"

#include <array>
#include <string>

namespace espalier::testing {
namespace {

int Random(int n, std::mt19937_64& random) {
  return static_cast<int>(random() % n);
}

std::string RandomKey(std::mt19937_64& random) {
  static constexpr std::array<const char*, 5> kKeys = {"a", "b", "ab", "c", ""};
  return kKeys[Random(5, random)];
}

std::string RandomKeyPattern(std::mt19937_64& random) {
  static constexpr std::array<const char*, 4> kPatterns = {"a", "^b", "c$",
                                                           "^[ab]*$"};
  return kPatterns[Random(4, random)];
}

json::value RandomScalar(std::mt19937_64& random) {
  switch (Random(6, random)) {
    case 0:
      return nullptr;
    case 1:
      return Random(2, random) == 0;
    case 2:
      return Random(5, random) - 2;
    case 3:
      return 0.5 * (Random(9, random) - 4);
    default:
      return json::value(RandomKey(random));
  }
}

json::object SchemaMap(int size, bool has_patterns, std::mt19937_64& random) {
  json::object map;
  const int num = 1 + Random(3, random);
  for (int i = 0; i < num; ++i) {
    map[has_patterns ? RandomKeyPattern(random) : RandomKey(random)] =
        RandomSchema(size / num, random);
  }
  return map;
}

json::array SchemaList(int size, std::mt19937_64& random) {
  json::array list;
  const int num = 1 + Random(3, random);
  for (int i = 0; i < num; ++i) {
    list.push_back(RandomSchema(size / num, random));
  }
  return list;
}

json::array Keys(std::mt19937_64& random) {
  json::array keys;
  for (int i = Random(3, random); i >= 0; --i) {
    keys.emplace_back(RandomKey(random));
  }
  return keys;
}

void AddKeyword(int size, std::mt19937_64& random, json::object* schema) {
  static constexpr std::array<const char*, 7> kTypes = {
      "null", "boolean", "number", "integer", "string", "array", "object"};
  json::object& s = *schema;
  switch (Random(28, random)) {
    case 0:
    case 1:
      s["type"] = kTypes[Random(7, random)];
      break;
    case 2:
      s["const"] = RandomValue(2, random);
      break;
    case 3:
      s["enum"] = {RandomValue(1, random), RandomScalar(random),
                   RandomScalar(random)};
      break;
    case 4:
      s["minimum"] = 0.5 * (Random(9, random) - 4);
      break;
    case 5:
      s["exclusiveMaximum"] = Random(9, random) - 2;
      break;
    case 6:
      s["multipleOf"] = Random(2, random) == 0 ? 0.5 : 2;
      break;
    case 7:
      s["minLength"] = Random(3, random);
      break;
    case 8:
      s["maxLength"] = Random(4, random);
      break;
    case 9:
      s["pattern"] = RandomKeyPattern(random);
      break;
    case 10:
    case 11:
      s["properties"] = SchemaMap(size, false, random);
      break;
    case 12:
      s["patternProperties"] = SchemaMap(size, true, random);
      break;
    case 13:
      s["additionalProperties"] = RandomSchema(size, random);
      break;
    case 14:
      s["propertyNames"] = RandomSchema(size / 2, random);
      break;
    case 15:
      s["required"] = Keys(random);
      break;
    case 16:
      s["minProperties"] = Random(4, random);
      break;
    case 17:
      s["maxProperties"] = Random(4, random);
      break;
    case 18:
      s["items"] = RandomSchema(size, random);
      break;
    case 19:
      s["prefixItems"] = SchemaList(size, random);
      break;
    case 20:
      s["minItems"] = Random(3, random);
      s["maxItems"] = Random(4, random);
      break;
    case 21:
      s["contains"] = RandomSchema(size / 2, random);
      if (Random(2, random) == 0) s["minContains"] = Random(3, random);
      if (Random(2, random) == 0) s["maxContains"] = Random(3, random);
      break;
    case 22:
      s["dependentRequired"] = {{RandomKey(random), Keys(random)}};
      break;
    case 23:
      s["dependentSchemas"] = {{RandomKey(random), RandomSchema(size, random)}};
      break;
    case 24:
      s["not"] = RandomSchema(size, random);
      break;
    case 25:
      s["if"] = RandomSchema(size / 3, random);
      s["then"] = RandomSchema(size / 3, random);
      s["else"] = RandomSchema(size / 3, random);
      break;
    case 26:
      s["anyOf"] = SchemaList(size, random);
      break;
    default:
      s[Random(2, random) == 0 ? "oneOf" : "allOf"] = SchemaList(size, random);
  }
}

}  // namespace

json::value RandomSchema(int size, std::mt19937_64& random) {
  if (size <= 0) return Random(4, random) > 0;
  json::object schema;
  const int num = 1 + Random(3, random);
  for (int i = 0; i < num; ++i) AddKeyword(size - num, random, &schema);
  return schema;
}

json::value RandomValue(int depth, std::mt19937_64& random) {
  if (depth <= 0 || Random(3, random) == 0) return RandomScalar(random);
  const int num = Random(4, random);
  if (Random(2, random) == 0) {
    json::array items;
    for (int i = 0; i < num; ++i) {
      items.push_back(RandomValue(depth - 1, random));
    }
    return items;
  }
  json::object object;
  for (int i = 0; i < num; ++i) {
    object[RandomKey(random)] = RandomValue(depth - 1, random);
  }
  return object;
}

}  // namespace espalier::testing
