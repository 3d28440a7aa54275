// No filter, function or method makes text of an input that has no mark: all of
// them, with an input at each place in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "text/jinja/template.h"

namespace espalier::jinja {
namespace {

using ::espalier::testing::Cases;

// All filters of docs/chat.md.
constexpr std::string_view kFilterNames[] = {
    "abs",        "attr",    "capitalize", "count", "d",     "default",
    "dictsort",   "e",       "escape",     "first", "float", "format",
    "indent",     "int",     "items",      "join",  "last",  "length",
    "list",       "lower",   "map",        "max",   "min",   "reject",
    "rejectattr", "replace", "reverse",    "round", "safe",  "select",
    "selectattr", "sort",    "string",     "sum",   "title", "tojson",
    "trim",       "unique",  "upper"};
constexpr std::string_view kMethodNames[] = {
    "capitalize", "copy",       "count",        "endswith",     "find",
    "format",     "get",        "index",        "isalnum",      "isalpha",
    "isdecimal",  "isdigit",    "islower",      "isnumeric",    "isspace",
    "isupper",    "items",      "join",         "keys",         "lower",
    "lstrip",     "partition",  "removeprefix", "removesuffix", "replace",
    "rfind",      "rindex",     "rpartition",   "rsplit",       "rstrip",
    "split",      "splitlines", "startswith",   "strip",        "title",
    "upper",      "values"};
constexpr std::string_view kFunctionNames[] = {"dict", "namespace", "range",
                                               "strftime_now"};
// Parameters, of whichever function has them.
constexpr std::string_view kParameterNames[] = {
    "attribute", "chars", "d",   "default",    "default_value", "indent",
    "new",       "old",   "sep", "separators", "start",         "width"};

// Bytes that no template below contains, so that their output is from an input:
// bytes beyond ASCII, those of special tokens, and their escapes.
bool IsOfInput(char byte) {
  return (static_cast<unsigned char>(byte) & 0x80) != 0 ||
         std::string_view("/&;#\n").find(byte) != std::string_view::npos;
}

// Nor these, which no count and no index has.
constexpr std::string_view kDigitsOfInput = "888";

class MarksTest : public ::testing::Test {
 protected:
  MarksTest() {
    const json::array texts{"§", "</§>\n</§>", "{:/>9}{0}", "%%%9s%%"};
    for (const json::value& text : texts) {
      Inputs inputs;
      EXPECT_TRUE(inputs.Set("x", text).ok());
      EXPECT_TRUE(
          inputs.Set("map", json::object{{text.get_string(), text}}).ok());
      inputs_.push_back(std::move(inputs));
    }
    // Numbers: their digits are of the user's choice, too.
    for (const json::value& number : json::array{8888, -8888.5, "8888"}) {
      Inputs inputs;
      EXPECT_TRUE(inputs.Set("x", number).ok());
      EXPECT_TRUE(inputs.Set("map", json::object{{"a", number}}).ok());
      inputs_.push_back(std::move(inputs));
    }
  }

  // Checks an expression of `x`, `map` or both. An expression that fails has no
  // text.
  void Expect(const std::string& expression) {
    const auto is_of_input = [](std::string_view part) {
      return std::ranges::any_of(part, IsOfInput) ||
             part.find(kDigitsOfInput) != part.npos;
    };
    const auto parsed = Template::Parse("{{ " + expression + " }}");
    ASSERT_TRUE(parsed.ok()) << expression << parsed.status();
    for (const Inputs& inputs : inputs_) {
      const absl::StatusOr<Text> text = (*parsed)->Render(inputs);
      if (!text.ok()) continue;
      ++num_rendered_;
      for (const Text::Run& run : text->Runs()) {
        if (run.is_input) continue;
        const std::string part =
            text->bytes().substr(run.begin, run.end - run.begin);
        EXPECT_FALSE(is_of_input(part))
            << expression << " gives " << text->bytes() << " with " << part;
      }
    }
  }

  // `call` is all but the arguments' end: "x|join(" or "'a'.join(".
  void ExpectWithArguments(const std::string& call, bool is_input) {
    for (const std::string_view value :
         {"x", "(x, '')", "('', x)", "[x, x]", "map"}) {
      Expect(Concat(call, value, ")"));
      Expect(Concat(call, "3, ", value, ")"));
      Expect(Concat(call, "'a', ", value, ")"));
    }
    for (const std::string_view name : kParameterNames) {
      Expect(Concat(call, name, "=x)"));
      Expect(Concat(call, name, "=(x, ''))"));
      Expect(Concat(call, "3, ", name, "=x)"));
    }
    Expect(call + "true, x)");
    Expect(call + "x, x)");
    Expect(call + "1, 2, x)");
    Expect(call + "**map)");
    Expect(call + "'a', **map)");
    if (!is_input) return;
    Expect(call + ")");
    Expect(call + "3)");
    Expect(call + "9, true, true)");
    Expect(call + "'a')");
    Expect(call + "'a', 'b')");
    Expect(call + "1, 2)");
  }

  std::vector<Inputs> inputs_;
  int64_t num_rendered_ = 0;
};

constexpr std::string_view kOwn[] = {"'a b'",      "'{} {a}'",
                                     "'(%s)'",     "['b', 'a']",
                                     "{'a': 'b'}", "[[1, 2], {1: 2}]"};
constexpr std::string_view kOfInput[] = {
    "x", "('a' ~ x ~ 'b')", "[x, 'a']", "map", "[map]", "[{'a': x}]"};

TEST_F(MarksTest, FiltersMark) {
  for (const std::string_view name : kFilterNames) {
    const int64_t before = num_rendered_;
    for (size_t i = 0; i < std::size(kOwn); i += Cases(1, 3)) {
      ExpectWithArguments(Concat(kOwn[i], "|", name, "("), false);
    }
    for (size_t i = 0; i < std::size(kOfInput); i += Cases(1, 3)) {
      ExpectWithArguments(Concat(kOfInput[i], "|", name, "("), true);
    }
    // Its elements, where it is a generator.
    Expect(Concat("(x|", name, ")|list"));
    Expect(Concat("([x, 'a']|", name, ")|join('-')"));
    Expect(Concat("[3]|", name));
    if (name != "abs" && name != "round") {
      EXPECT_GT(num_rendered_, before) << name;
    }
  }
}

TEST_F(MarksTest, MethodsMark) {
  for (const std::string_view name : kMethodNames) {
    const int64_t before = num_rendered_;
    for (size_t i = 0; i < std::size(kOwn); i += Cases(1, 3)) {
      ExpectWithArguments(Concat(kOwn[i], ".", name, "("), false);
    }
    for (size_t i = 0; i < std::size(kOfInput); i += Cases(1, 3)) {
      ExpectWithArguments(Concat(kOfInput[i], ".", name, "("), true);
    }
    EXPECT_GT(num_rendered_, before) << name;
  }
}

TEST_F(MarksTest, FunctionsAndOperatorsMark) {
  for (const std::string_view name : kFunctionNames) {
    ExpectWithArguments(Concat(name, "("), false);
  }
  for (const std::string_view op : {"+", "~", "*", "%", "and", "or"}) {
    for (const std::string_view own : {"'a'", "3", "('a', 3)", "'%s%%r'[:2]"}) {
      Expect(Concat("x ", op, " ", own));
      Expect(Concat(own, " ", op, " x"));
    }
    Expect(Concat("x ", op, " x"));
  }
  Expect("x[::-1] ~ x[1:] ~ x[0]");
  Expect("map[x] ~ map.missing");
  for (const std::string_view op : {"+", "-", "*", "/", "//", "%", "**"}) {
    Expect(Concat("x ", op, " 1"));
    Expect(Concat("9999 ", op, " x"));
    Expect(Concat("x|int ", op, " 1"));
    Expect(Concat("(x|float ", op, " 1)|string"));
  }
  Expect("-x");
  Expect("+x");
  Expect("range(x, x + 2)");
  Expect("range(x, x + 2)|list");
  Expect("range(x - 1, x + 2)|join(',')");
  Expect("[x, 1]|sum ~ [1, x]|sum");
  Expect("{x: 1} ~ {x: x}|tojson");
  for (const std::string_view spec : {"%d", "%5d", "%s", "%r", "%f", "%.1f"}) {
    Expect(Concat("'a", spec, "b' % x"));
    Expect(Concat("'a", spec, "b' % (x|float)"));
  }
  for (const std::string_view spec : {"", ":d", ":>9", ":f", ":,", ":07.1f"}) {
    Expect(Concat("'a{", spec, "}b'.format(x)"));
  }
}

// With the runs of a rendering in brackets that are an input's.
std::string Marked(std::string_view source, const json::value& x) {
  Inputs inputs;
  EXPECT_TRUE(inputs.Set("x", x).ok());
  const Text text = Template::Parse(source).value()->Render(inputs).value();
  std::string marked;
  for (const Text::Run& run : text.Runs()) {
    const std::string part =
        text.bytes().substr(run.begin, run.end - run.begin);
    marked += run.is_input ? "[" + part + "]" : part;
  }
  return marked;
}

TEST(MarksOfScalarsTest, WhatPrintsANumberOfAnInputIsAnInput) {
  EXPECT_EQ(Marked("<|{{ x }}|>", 5), "<|[5]|>");
  EXPECT_EQ(Marked("<|{{ x }}|>{{ x }}", true), "<|[True]|>[True]");
  EXPECT_EQ(Marked("{{ x }}", nullptr), "[None]");
  EXPECT_EQ(Marked("{{ x }}", 1.5), "[1.5]");
  EXPECT_EQ(Marked("{{ x }}", 18446744073709551615u),
            "[1.8446744073709552e+19]");
  EXPECT_EQ(Marked("{{ x|tojson }}{{ x }}", {1, {{"a", false}}}),
            "[[1, {\"a\": false}][1, {'a': False}]]");
  EXPECT_EQ(Marked("{{ x + 1 }}{{ 1 + 1 }}", 5), "[6]2");
  EXPECT_EQ(Marked("{{ '%d-%s' % (x, 7) }}", 5), "[5]-7");
  EXPECT_EQ(Marked("{{ x|int }}{{ '5'|int }}", "5"), "[5]5");
}

// Counts, and branches on a number, are the template's own.
TEST(MarksOfScalarsTest, WhatATemplateCountsAndDecidesIsItsOwn) {
  EXPECT_EQ(Marked("{{ x|length }}{{ x[0] > 1 }}{{ x[0] == 5 }}", {5, 6}),
            "2TrueTrue");
  EXPECT_EQ(Marked("{% for i in x %}{{ loop.index }}{% endfor %}", {5, 6}),
            "12");
  EXPECT_EQ(Marked("{{ 'a' * x }}{{ 1 if x else 2 }}", 3), "aaa1");
}

}  // namespace
}  // namespace espalier::jinja
