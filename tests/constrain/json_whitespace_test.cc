#include "constrain/json_whitespace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/sample_text.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kSpaces = " \t\n\r";

// Tells where in a text a string is.
class StringPlace {
 public:
  bool is_inside() const { return is_inside_; }
  void Pass(char c) {
    if (c == '"' && !is_escaped_) is_inside_ = !is_inside_;
    is_escaped_ = c == '\\' && !is_escaped_;
  }

 private:
  bool is_inside_ = false;
  bool is_escaped_ = false;
};

// A text without the white space between its parts, which is told apart.
struct Parted {
  std::string text;
  std::vector<std::string> spaces;  // at each place, the empty ones as well
};

Parted Part(std::string_view text) {
  Parted parted;
  StringPlace string;
  bool is_after_mark = false;  // a mark that white space may follow
  std::string spaces;
  for (const char c : text) {
    const bool is_space = kSpaces.find(c) != kSpaces.npos;
    if (!string.is_inside() && is_space) {
      spaces += c;
      continue;
    }
    const bool is_before_mark =
        !string.is_inside() &&
        std::string_view("]},:").find(c) != std::string::npos;
    if (is_after_mark || is_before_mark) {
      parted.spaces.push_back(std::exchange(spaces, ""));
    }
    parted.text += std::exchange(spaces, "") + c;
    string.Pass(c);
    is_after_mark = !string.is_inside() &&
                    std::string_view("[{,:").find(c) != std::string::npos;
  }
  parted.text += spaces;
  return parted;
}

std::string RandomSpacePattern(int size, std::mt19937_64& random) {
  static constexpr const char* kAtoms[] = {
      " ", "\\n", "\\t", "[ \\n]", "[\\t\\r]", "\\x20", "\\u{A}", "[\\t-\\n ]"};
  static constexpr const char* kRepeats[] = {"",  "*",     "+",     "?",
                                             "?", "{0,2}", "{1,3}", "{2}"};
  std::string pattern = kAtoms[random() % 8];
  if (size > 1 && random() % 2 == 0) {
    pattern = "(" + RandomSpacePattern(size - 1, random) + ")";
  }
  pattern += kRepeats[random() % 8];
  if (size > 1 && random() % 3 == 0) {
    pattern += "|" + RandomSpacePattern(size - 1, random);
  } else if (size > 1 && random() % 2 == 0) {
    pattern += RandomSpacePattern(size - 1, random);
  }
  return pattern;
}

// The texts of a schema, whether it recurs or not.
class Texts {
 public:
  Texts(const std::string& schema, const JsonSchemaOptions& options) {
    auto language = CompileJsonSchemaWithCalls(schema, options);
    EXPECT_TRUE(language.ok()) << language.status();
    if (auto* const finite = std::get_if<ByteAutomaton>(&*language)) {
      finite_ = std::make_unique<ByteAutomaton>(std::move(*finite));
      return;
    }
    const auto automaton = std::make_shared<const PushdownAutomaton>(
        std::get<PushdownAutomaton>(*std::move(language)));
    calls_ =
        std::make_unique<PushdownConfigurations>(automaton, automaton->bytes());
  }

  bool Have(std::string_view text) const {
    return finite_ != nullptr ? finite_->Match(text).in_language
                              : calls_->Match(text).in_language;
  }
  std::string Sample(std::mt19937_64* random) const {
    constexpr int64_t kCompleteAfter = 20;
    return finite_ != nullptr
               ? SampleText(*finite_, kCompleteAfter, random)
               : SampleText(*calls_, kCompleteAfter, random).value();
  }

 private:
  std::unique_ptr<ByteAutomaton> finite_;
  std::unique_ptr<PushdownConfigurations> calls_;
};

constexpr const char* kSpacedSchemas[] = {
    R"({"type": "array", "items": {"enum": [1, "a [,] b", [], {}]}})",
    R"({"properties": {"a": {"const": 1}, "b": {"type": "boolean"},
                       "c d": {"type": "array", "maxItems": 2}},
        "type": "object", "additionalProperties": false})",
    R"({"properties": {"a": {"const": 1}}, "minProperties": 1,
        "patternProperties": {"^k": {"type": "null"}}, "type": "object",
        "additionalProperties": {"type": "integer"}})",
    R"({"type": "array", "items": {"$ref": "#"}})",
    R"({"type": "object", "properties": {"n": {"$ref": "#"}, "s": {"const":
        "x"}}, "required": ["s"], "additionalProperties": false})"};

// Each text with random white space is in the language if and only if it is
// one without it, and the white space at each place matches the pattern.
TEST(JsonWhitespaceTest, TextsAreThoseWithoutItAndMatchesAtEachPlace) {
  std::mt19937_64 random(40);
  const std::vector<std::string> all = AllTexts(kSpaces, 3);
  int num_in = 0;
  int num_out = 0;
  for (const std::string schema : kSpacedSchemas) {
    const Texts compact(schema, {.has_spaces = false});
    for (int i = 0; i < Cases(30, 2); ++i) {
      const std::string pattern = RandomSpacePattern(4, random);
      SCOPED_TRACE(schema + " " + pattern);
      const auto spaces = CompileJsonWhitespace(pattern);
      ASSERT_TRUE(spaces.ok()) << spaces.status();
      const Texts texts(schema, {.whitespace = pattern});
      std::vector<std::string> matching;
      for (const std::string& text : all) {
        if (spaces->Match(text).in_language) matching.push_back(text);
      }
      const auto is_expected = [&](const std::string& text) {
        const Parted parted = Part(text);
        bool matches = compact.Have(parted.text);
        for (const std::string& space : parted.spaces) {
          matches = matches && spaces->Match(space).in_language;
        }
        return matches;
      };
      const auto check = [&](const std::string& text) {
        const bool expected = is_expected(text);
        ++(expected ? num_in : num_out);
        EXPECT_EQ(texts.Have(text), expected) << text;
      };
      for (int j = 0; j < 20; ++j) {
        // A text of the language, and the same with a change.
        std::string sample = texts.Sample(&random);
        EXPECT_TRUE(is_expected(sample)) << sample;
        check(sample);
        const size_t at = random() % (sample.size() + 1);
        sample.insert(at, 1, kSpaces[random() % kSpaces.size()]);
        check(sample);
        // A compact text with white space that most often matches.
        std::string text;
        StringPlace string;
        for (const char c : compact.Sample(&random)) {
          const auto add = [&] {
            const auto& from =
                matching.empty() || random() % 20 == 0 ? all : matching;
            text += from[random() % from.size()];
          };
          const auto is_one_of = [&](std::string_view marks) {
            return !string.is_inside() && marks.find(c) != marks.npos;
          };
          const bool is_empty = text.ends_with('[') || text.ends_with('{');
          if (is_one_of(",:") || (is_one_of("]}") && !is_empty)) add();
          text += c;
          string.Pass(c);
          if (is_one_of("[{,:")) add();
        }
        check(text);
      }
    }
  }
  EXPECT_GT(num_in, Cases(1000, 50));
  EXPECT_GT(num_out, Cases(1000, 50));
}

TEST(JsonWhitespaceTest, NoWhitespaceIsThatOfTheEmptyPattern) {
  for (const std::string schema : kSpacedSchemas) {
    const auto none = CompileJsonSchema(schema, {.has_spaces = false});
    const auto empty = CompileJsonSchema(schema, {.whitespace = ""});
    ASSERT_TRUE(none.ok() && empty.ok());
    EXPECT_TRUE(*none == *empty);
  }
}

// Values of {} are shared by all compilations without a pattern alone.
TEST(JsonWhitespaceTest, ValuesOfAnyKindHaveIt) {
  for (const std::string schema : {R"({})", R"({"items": {}})"}) {
    const Texts texts(schema, {.whitespace = "\\n"});
    EXPECT_TRUE(texts.Have("[\n[\n]\n,\n{\n\"a\"\n:\n1\n}\n]"));
    EXPECT_FALSE(texts.Have("[[]]"));
    EXPECT_FALSE(texts.Have("[\n[]\n]"));
  }
}

TEST(JsonWhitespaceTest, OtherPatternsAreRefused) {
  const auto error = [](std::string_view pattern) {
    return Message(CompileJsonWhitespace(pattern).status());
  };
  EXPECT_EQ(error("[ a]"),
            "a text that it matches has \"a\", but between its parts JSON has "
            "space, \\t, \\n and \\r alone");
  EXPECT_THAT(error("\\s*"), HasSubstr("has \"\\u000b\""));
  EXPECT_THAT(error(" \u00a0"), HasSubstr("has \"\\xc2\""));
  EXPECT_THAT(error("."), HasSubstr("that it matches has"));
  EXPECT_THAT(error(" (?= )"), StartsWith("at byte 1: "));
  EXPECT_THAT(error("(\n"), StartsWith("at byte "));
  EXPECT_EQ(error("$ ^"), "no text matches");
  EXPECT_THAT(error("\xFF"), HasSubstr("UTF-8"));
  EXPECT_THAT(error(std::string(100'000, ' ')),
              HasSubstr("at most 65536 bytes"));
  EXPECT_THAT(error(" {0,2000}"), HasSubstr("1024 states, the limit"));
  EXPECT_THAT(error("((\\n| ){0,900}\\t){900}"), HasSubstr("the limit"));
  const std::string any = "{}";
  EXPECT_THAT(Message(CompileJsonSchema(any, {.whitespace = "x"}).status()),
              StartsWith("whitespace: a text that it matches has \"x\""));
}

// 1,023 spaces at each place of a large schema.
TEST(JsonWhitespaceTest, ALargePatternEndsInAnErrorOrALanguage) {
  std::string properties;
  for (int i = 0; i < 50; ++i) {
    properties += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) +
                  R"(": {"type": "array"})";
  }
  const auto language = CompileJsonSchemaWithCalls(
      R"({"type": "object", "properties": {)" + properties + "}}",
      {.whitespace = " {0,1023}"});
  ASSERT_FALSE(language.ok());
  EXPECT_THAT(Message(language.status()), HasSubstr("the limit"));
}

TEST(JsonSchemaTest, ObjectsWithNamedKeysCanBeClosed) {
  const auto accepts = [](std::string_view schema, std::string_view text) {
    const auto language = CompileJsonSchema(
        schema, {.has_spaces = false, .disable_additional_properties = true});
    EXPECT_TRUE(language.ok()) << language.status();
    return language->Match(text).in_language;
  };
  const std::string named = R"({"properties": {"a": {"type": "integer"}}})";
  EXPECT_TRUE(accepts(named, R"({"a":1})"));
  EXPECT_FALSE(accepts(named, R"({"b":1})"));
  EXPECT_TRUE(accepts(named, R"(7)"));
  EXPECT_FALSE(accepts(R"({"items": )" + named + "}", R"([{"b":1}])"));
  EXPECT_FALSE(accepts(
      R"({"$ref": "#/$defs/a", "$defs": {"a": )" + named + "}}", R"({"b":1})"));
  EXPECT_FALSE(accepts(R"({"patternProperties": {"^a": {}}})", R"({"b":1})"));
  EXPECT_TRUE(accepts(R"({"patternProperties": {"^a": {}}})", R"({"ab":1})"));
  // Objects that no subschema has keys of, and those that say so, are open.
  EXPECT_TRUE(accepts(R"({"type": "object"})", R"({"b":1})"));
  EXPECT_TRUE(accepts(R"({"properties": {"a": {}}, "additionalProperties":
                          {"type": "integer"}})",
                      R"({"b":1})"));
  // A key of this name is no keyword, and constants are no schemas.
  EXPECT_TRUE(accepts(R"({"properties": {"properties": {"const": 5}}})",
                      R"({"properties":5})"));
  EXPECT_TRUE(
      accepts(R"({"const": {"properties": 1}})", R"({"properties":1})"));
}

}  // namespace
}  // namespace espalier
