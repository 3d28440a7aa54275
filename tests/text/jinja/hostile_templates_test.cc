// What is wrong with a template is said with its place, and what would cost too
// much ends soon, whatever it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/status_matchers.h"
#include "text/jinja/template.h"

namespace espalier::jinja {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

std::string Repeat(std::string_view text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

std::string ErrorOf(const std::string& source) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return Message(parsed.status());
  Inputs inputs;
  const json::value messages = {{{"role", "user"}, {"content", "Hi"}}};
  if (!inputs.Set("messages", messages).ok()) return "bad inputs";
  const auto text = (*parsed)->Render(inputs);
  return text.ok() ? "no error" : Message(text.status());
}

struct BadTemplate {
  const char* source;
  const char* error;
};

class MalformedTemplateTest : public ::testing::TestWithParam<BadTemplate> {};

TEST_P(MalformedTemplateTest, IsRefusedWithItsPlace) {
  EXPECT_EQ(ErrorOf(GetParam().source), GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    All, MalformedTemplateTest,
    ::testing::Values(
        BadTemplate{"a\n {{ x",
                    "line 2, column 2: an expression has no end "
                    "\"}}\""},
        BadTemplate{"{% if x", "line 1, column 1: a block has no end \"%}\""},
        BadTemplate{"{# x", "line 1, column 1: a comment has no end \"#}\""},
        BadTemplate{"{% raw %}x",
                    "line 1, column 1: a raw block has no end: "
                    "{% endraw %}"},
        BadTemplate{"{{ 'x }}", "line 1, column 4: a string has no end"},
        BadTemplate{"{{ '\\x4' }}",
                    "line 1, column 4: a string has an escape "
                    "that says no character"},
        BadTemplate{"{{ $ }}", "line 1, column 4: unexpected character \"$\""},
        BadTemplate{"{{ (1] }}", "line 1, column 6: unexpected \"]\""},
        BadTemplate{"{{ }}",
                    "line 1, column 4: expected an expression, got "
                    "\"}}\""},
        BadTemplate{"{{ 1 + }}",
                    "line 1, column 8: expected an expression, "
                    "got \"}}\""},
        BadTemplate{"{{ 1 2 }}",
                    "line 1, column 6: expected \"}}\", got "
                    "\"2\""},
        BadTemplate{"{{ x. }}",
                    "line 1, column 7: expected a name, got "
                    "\"}}\""},
        BadTemplate{"{{ f(a=1, 2) }}",
                    "line 1, column 11: this argument "
                    "cannot follow those before it"},
        BadTemplate{"{{ 99999999999999999999 }}",
                    "line 1, column 4: 99999999999999999999 is too large"},
        BadTemplate{"x\n{% iff x %}", "line 2, column 4: unknown tag \"iff\""},
        BadTemplate{"{% include 'x' %}",
                    "line 1, column 4: unknown tag "
                    "\"include\""},
        BadTemplate{"{% if 1 %}x",
                    "line 1, column 12: expected {% endif %}, "
                    "got the end of the template"},
        BadTemplate{"{% endif %}", "line 1, column 4: unknown tag \"endif\""},
        BadTemplate{"{% for 1 in x %}{% endfor %}",
                    "line 1, column 8: expected a name, got \"1\""},
        BadTemplate{"{% for x in y recursive %}{% endfor %}",
                    "line 1, column 15: a recursive for is not supported"},
        BadTemplate{"{% set true = 1 %}",
                    "line 1, column 8: cannot assign to "
                    "\"true\""},
        BadTemplate{"{% break %}",
                    "line 1, column 4: {% break %} stands "
                    "outside of a loop"},
        BadTemplate{"{% macro m(a=1, b) %}{% endmacro %}",
                    "line 1, column 18: a parameter without a default follows "
                    "one with a default"},
        BadTemplate{"{% macro m(a, a) %}{% endmacro %}",
                    "line 1, column 16: parameter \"a\" is there twice"},
        BadTemplate{"{% call 1 %}{% endcall %}",
                    "line 1, column 9: a call block needs a call"},
        BadTemplate{"{{ x|upperr }}",
                    "line 1, column 6: unknown filter "
                    "\"upperr\""},
        BadTemplate{"{{ x is stringg }}",
                    "line 1, column 9: unknown test "
                    "\"stringg\""},
        BadTemplate{"{{ f(1) }}", "line 1, column 4: 'f' is undefined"},
        BadTemplate{"\n\n  {{ messages[0].x.y }}",
                    "line 3, column 19: 'dict object' has no attribute 'x'"},
        BadTemplate{"{{ messages.append(1) }}",
                    "line 1, column 12: access to attribute 'append' of 'list' "
                    "object is unsafe"},
        BadTemplate{"{{ ''.__class__.x }}",
                    "line 1, column 16: 'str object' has no attribute "
                    "'__class__'"},
        BadTemplate{"{{ raise_exception('Bad roles') }}",
                    "line 1, column 4: Bad roles"},
        BadTemplate{"{% for a, b in [[1]] %}{% endfor %}",
                    "line 1, column 18: expected 2 values to unpack, got 1"},
        BadTemplate{"{{ 1 // 0 }}", "line 1, column 4: division by zero"},
        BadTemplate{"{{ 2 ** 64 }}",
                    "line 1, column 4: an integer has more "
                    "than 64 bits"},
        BadTemplate{"{{ 1 + 'a' }}",
                    "line 1, column 4: \"+\" cannot be "
                    "applied to int and str"},
        BadTemplate{"{{ 'a'|indent(1, 2, 3, 4) }}",
                    "line 1, column 8: indent() takes 3 arguments at most, got "
                    "4"},
        BadTemplate{"{{ 'a'|tojson(width=1) }}",
                    "line 1, column 8: tojson() has no parameter \"width\""}));

class HostileTemplateTest : public ::testing::TestWithParam<BadTemplate> {};

TEST_P(HostileTemplateTest, EndsInAnError) {
  EXPECT_THAT(ErrorOf(GetParam().source), HasSubstr(GetParam().error));
}

constexpr char kSteps[] = "takes too many steps";
constexpr char kMemory[] = "takes too much memory";

INSTANTIATE_TEST_SUITE_P(
    All, HostileTemplateTest,
    ::testing::Values(
        BadTemplate{"{{ 'a' * 1000000000 }}", kMemory},
        BadTemplate{"{{ 'a' * 9223372036854775807 }}", kMemory},
        BadTemplate{"{{ [0] * 1000000000 }}", kSteps},
        BadTemplate{"{{ range(1000000000) }}", "more than 100000 numbers"},
        BadTemplate{"{% for i in range(99999) %}{% for j in range(99999) %}"
                    "{% endfor %}{% endfor %}",
                    kSteps},
        BadTemplate{"{% set n = namespace(s='ab') %}{% for i in range(99) %}"
                    "{% set n.s = n.s + n.s %}{% endfor %}",
                    kMemory},
        BadTemplate{"{% set n = namespace(s=[1]) %}{% for i in range(99) %}"
                    "{% set n.s = n.s + n.s %}{% endfor %}",
                    kSteps},
        BadTemplate{"{% set n = namespace(s='ab') %}{% for i in range(99) %}"
                    "{% set n.s = [n.s, n.s]|join %}{% endfor %}",
                    kMemory},
        BadTemplate{"{% set n = namespace(s='ab') %}{% for i in range(99) %}"
                    "{% set n.s = n.s|replace('', n.s) %}{% endfor %}",
                    kMemory},
        BadTemplate{"{% set n = namespace(s='a') %}{% for i in range(99) %}"
                    "{% set n.s = '%s%s' % (n.s, n.s) %}{% endfor %}",
                    kMemory},
        BadTemplate{"{% set n = namespace(x=[]) %}{% for i in range(999) %}"
                    "{% set n.x = [n.x] %}{% endfor %}",
                    "values are nested more than 100 deep"},
        BadTemplate{"{% set n = namespace(x={}) %}{% for i in range(999) %}"
                    "{% set n.x = {'x': n.x} %}{% endfor %}",
                    "values are nested more than 100 deep"},
        BadTemplate{"{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
                    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
                    kSteps},
        BadTemplate{"{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
                    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson }}",
                    kSteps},
        BadTemplate{"{% set n = namespace(x=[1], y=[1]) %}"
                    "{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
                    "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
                    kSteps},
        BadTemplate{"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                    "evaluation is nested more than 500 deep"},
        BadTemplate{"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
                    "evaluation is nested more than 500 deep"},
        BadTemplate{"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}"
                    "{% endif %}{% endmacro %}{{ m(30) }}",
                    kSteps},
        BadTemplate{"{{ 'x'.ljust(999999999) }}", kMemory},
        BadTemplate{"{{ 'x'|center(999999999) }}", kMemory},
        BadTemplate{"{{ 'x'|indent(999999999, true) }}", kMemory},
        BadTemplate{"{{ '%999999999d' % 1 }}", "width or precision"},
        BadTemplate{"{{ '{:999999999}'.format(1) }}", "width or precision"},
        BadTemplate{"{{ [1]|tojson(indent=999999999) }}",
                    "indent may be 1000 at most"},
        BadTemplate{"{{ [1]|batch(999999999, 0)|list }}", kSteps},
        BadTemplate{"{% for i in range(99999) %}{{ ('a' * 99999)[1:] }}"
                    "{% endfor %}",
                    kMemory},
        BadTemplate{"{% set x = range(99999)|list %}{% for i in x %}"
                    "{{ -1 in x }}{% endfor %}",
                    kSteps},
        BadTemplate{"{{ range(9999)|map('string')|sort|join|length }}"
                    "{{ range(99999)|map('string')|unique|list }}",
                    kSteps},
        BadTemplate{"{% set n = namespace() %}{% set n.x = n %}"
                    "{% set n.f = n.x.x.x %}{{ n.x.y.z }}",
                    "has no attribute 'y'"},
        BadTemplate{"{% macro m() %}{% endmacro %}{% set n = namespace(f=m) %}"
                    "{% set n.g = [m, n] %}{{ n.h.i }}",
                    "has no attribute 'h'"},
        BadTemplate{"{{ strftime_now('%c' * 9999) }}", "1000 bytes"},
        BadTemplate{"{{ -9223372036854775807 - 2 }}", "more than 64 bits"},
        BadTemplate{"{% set n = namespace(i=9223372036854775807) %}"
                    "{{ n.i * n.i }}",
                    "more than 64 bits"}));

TEST(TemplateBoundsTest, WhatIsNestedTooDeepIsRefused) {
  constexpr int kMany = 40'000;
  const auto within = [](std::string_view open, std::string_view close) {
    return "{{ " + Repeat(open, kMany) + "1" + Repeat(close, kMany) + " }}";
  };
  const auto nested = HasSubstr("nested more than 150 deep");
  EXPECT_THAT(ErrorOf(within("(", ")")), nested);
  EXPECT_THAT(ErrorOf(within("[", "]")), nested);
  EXPECT_THAT(ErrorOf(within("{1:", "}")), nested);
  EXPECT_THAT(ErrorOf("{{ " + Repeat("-", kMany) + "1 }}"), nested);
  EXPECT_THAT(ErrorOf("{{ " + Repeat("not ", kMany) + "1 }}"), nested);
  EXPECT_THAT(ErrorOf("{{ 1" + Repeat("+1", kMany) + " }}"), nested);
  EXPECT_THAT(ErrorOf("{{ x" + Repeat(".x", kMany) + " }}"), nested);
  EXPECT_THAT(ErrorOf("{{ x" + Repeat("|trim", kMany) + " }}"), nested);
  EXPECT_THAT(ErrorOf("{{ x" + Repeat("()", kMany) + " }}"), nested);
  EXPECT_THAT(ErrorOf("{{ " + Repeat("1 if 1 else ", kMany) + "1 }}"), nested);
  EXPECT_THAT(ErrorOf("{{ 1" + Repeat(" if 1", kMany) + " }}"), nested);
  EXPECT_THAT(ErrorOf("{{ 1" + Repeat(" and 1", kMany) + " }}"), nested);
  EXPECT_THAT(ErrorOf(Repeat("{% if 1 %}", kMany / 10)), nested);
  EXPECT_THAT(ErrorOf(Repeat("{% for x in y %}", kMany / 10)), nested);
  EXPECT_THAT(ErrorOf("{% for " + Repeat("(", kMany) + "x" +
                      Repeat(")", kMany) + " in y %}"),
              nested);
  EXPECT_THAT(ErrorOf("{% filter " + Repeat("trim|", kMany) + "trim %}"),
              nested);
}

// Lists and tuples that share their elements: few objects, very many values.
std::string Shared(std::string_view name, std::string_view open,
                   std::string_view close) {
  const std::string n(name);
  return "{% set " + n + " = " + std::string(open) + "1," + std::string(close) +
         " %}" +
         Repeat("{% set " + n + " = " + std::string(open) + n + "," + n +
                    std::string(close) + " %}",
                60);
}

TEST(TemplateBoundsTest, ComparingSharedValuesTakesSteps) {
  const std::string lists = Shared("a", "[", "]") + Shared("b", "[", "]");
  const std::string tuples = Shared("a", "(", ")") + Shared("b", "(", ")");
  for (const char* const use :
       {"{{ [{'k': a}, {'k': b}]|groupby('k')|length }}",
        "{{ [a, b]|sort|length }}", "{{ [a, b]|max|length }}", "{{ a == b }}",
        "{{ a < b }}", "{{ a in [b] }}", "{{ [a].index(b) }}",
        "{{ [a].count(b) }}", "{{ {'x': a} == {'x': b} }}"}) {
    EXPECT_THAT(ErrorOf(lists + use), HasSubstr(kSteps)) << use;
  }
  for (const char* const use :
       {"{{ {a: 1, b: 2}|length }}", "{{ {a: 1}[b] }}", "{{ {a: 1}.get(b) }}",
        "{{ b in {a: 1} }}", "{{ [a, b]|unique|list|length }}",
        "{{ dict([(a, 1), (b, 2)])|length }}", "{{ {a: 1} == {b: 1} }}"}) {
    EXPECT_THAT(ErrorOf(tuples + use), HasSubstr(kSteps)) << use;
  }
  // A key is known to be one without walking through it.
  EXPECT_EQ(ErrorOf(Shared("a", "(", ")") + "{{ {a: 1}|length }}"), "no error");
  EXPECT_THAT(ErrorOf(Shared("a", "(", ")") + "{{ {(a, [1]): 1}|length }}"),
              HasSubstr("a tuple cannot be a key"));
}

TEST(TemplateBoundsTest, LongKeysAreRead) {
  const std::string begin =
      "{% set s = 'x' * 1000000 %}{% set d = {'a': 1} %}"
      "{% for i in range(9999) %}";
  for (const char* const use :
       {"{{ d[s] }}", "{{ s in d }}", "{{ d.get(s) }}", "{{ 'a'|attr(s) }}",
        "{{ s|length }}", "{{ s|int }}", "{{ s|float }}", "{{ 'a'.strip(s) }}",
        "{{ 'a'|trim(s) }}", "{{ []|join(s) }}", "{{ 'a'|replace(s, '') }}",
        "{{ 'a'.split(s) }}", "{{ 'a'.rpartition(s)[0] }}",
        "{{ 'a'.rjust(1, s) }}"}) {
    const std::string error = ErrorOf(begin + use + "{% endfor %}");
    EXPECT_TRUE(error.find(kMemory) != std::string::npos ||
                error.find("one character") != std::string::npos)
        << use << ": " << error;
  }
  for (const char* const use :
       {"{{ []|map(attribute=s)|list }}", "{{ []|sort(attribute=s) }}"}) {
    EXPECT_THAT(ErrorOf(begin + use + "{% endfor %}"), HasSubstr(kSteps))
        << use;
  }
  EXPECT_THAT(ErrorOf("{{ " + std::string(1001, 'x') + " }}"),
              HasSubstr("a name has more than 1000 bytes"));
}

// Each takes a byte of text for each of `p`, were it searched for naively.
TEST(TemplateBoundsTest, SearchingIsLinear) {
  const std::string begin =
      "{% set n = 200000 %}{% set t = 'a' * n %}{% set h = 'a' * 100000 %}";
  for (const char* const use :
       {"{{ t.find(h ~ 'b' ~ h) }}", "{{ (h ~ 'b') in t }}",
        "{{ ('b' ~ h) in t }}", "{{ t.rfind('b' ~ h) }}",
        "{{ t.rfind(h ~ 'b') }}", "{{ t.count('b' ~ h) }}",
        "{{ t.split('b' ~ h)|length }}", "{{ t.rsplit(h ~ 'b')|length }}",
        "{{ t.rsplit('b' ~ h)|length }}", "{{ t.replace(h ~ 'b', '')|length }}",
        "{{ t.partition('b' ~ h)|length }}",
        "{{ t.rpartition('b' ~ h)|length }}",
        "{{ t.strip('b' * n ~ 'a')|length }}"}) {
    EXPECT_EQ(ErrorOf(begin + use), "no error") << use;
  }
}

TEST(TemplateBoundsTest, ManyParametersAndNamesAreBounded) {
  std::string parameters;
  std::string arguments;
  std::string names;
  for (int i = 0; i < 5'000; ++i) {
    parameters += Concat(i == 0 ? "p" : ",p", i);
    arguments += Concat(i == 0 ? "p" : ",p", 4'999 - i, "=1");
  }
  for (int i = 0; i < 60'000; ++i) names += Concat("{{ n", i, " }}");
  const std::string macro = "{% macro m(" + parameters + ") %}{% endmacro %}";
  EXPECT_THAT(
      ErrorOf(macro + "{% for i in range(15000) %}{{ m() }}{% endfor %}"),
      HasSubstr(kSteps));
  EXPECT_THAT(ErrorOf(macro + "{% for i in range(99) %}{{ m(" + arguments +
                      ") }}{% endfor %}"),
              HasSubstr(kSteps));
  EXPECT_EQ(ErrorOf(macro + "{{ m(" + arguments + ") }}"), "no error");
  EXPECT_EQ(ErrorOf("{% set n = namespace(" + arguments + ") %}{{ n.p7 }}"),
            "no error");
  EXPECT_THAT(ErrorOf(names), HasSubstr(kSteps));
}

TEST(TemplateBoundsTest, FiltersThatApplyFiltersAreNested) {
  const std::string maps = Repeat("'map',", 510) + "'upper'";
  EXPECT_THAT(ErrorOf("{{ 'a'|map(" + maps + ")|list }}"),
              HasSubstr("evaluation is nested more than 500 deep"));
  EXPECT_THAT(ErrorOf("{% set x = ['map'] * 9000 %}{{ 'a'|map(*x)|list }}"),
              HasSubstr(kSteps));
}

TEST(TemplateBoundsTest, WhatTakesLongIsEnded) {
  const auto parsed = Template::Parse(
      "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}"
      "{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  RenderOptions options;
  options.limits.steps = std::numeric_limits<int64_t>::max() / 2;
  options.limits.time = std::chrono::milliseconds(0);
  EXPECT_THAT((*parsed)->Render(Inputs(), options),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("takes more than 0 ms")));
}

std::string Rendered(const std::string& source) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return Message(parsed.status());
  const auto text = (*parsed)->Render(Inputs());
  return text.ok() ? text->bytes() : Message(text.status());
}

TEST(TemplateBoundsTest, TheLeastAndTheMostIntegerAreNumbersAsAnyOther) {
  const std::string least = "(-9223372036854775807 - 1)";
  EXPECT_EQ(Rendered("{{ 'a'|center(" + least + ") }}"), "a");
  EXPECT_EQ(Rendered("{{ 'a'.ljust(" + least + ") }}"), "a");
  EXPECT_EQ(Rendered("{{ 1.5|round(" + least + ") }}"), "0.0");
  EXPECT_EQ(Rendered("{{ 'aa'.replace('a', 'b', " + least + ") }}"), "bb");
  EXPECT_EQ(
      Rendered("{{ range(0, 9223372036854775807, 9223372036854775806) }}"),
      "range(0, 9223372036854775807, 9223372036854775806)");
  EXPECT_EQ(Rendered("{{ 'a'[9223372036854775807] is defined }}"), "False");
}

TEST(TemplateBoundsTest, SearchesFromTheEndFindWhatPythonFinds) {
  EXPECT_EQ(Rendered("{{ 'abababa'.rfind('aba') }}"), "4");
  EXPECT_EQ(Rendered("{{ 'aabaaab'.rfind('aab') }}"), "4");
  EXPECT_EQ(Rendered("{{ 'abcabd'.rfind('abc') }}"), "0");
  EXPECT_EQ(Rendered("{{ 'aaaa'.rsplit('aa')|join('-') }}"), "--");
  EXPECT_EQ(Rendered("{{ 'abababa'.rsplit('aba', 1) }}"), "['abab', '']");
  EXPECT_EQ(Rendered("{{ 'abc'.rfind('') }}"), "3");
  EXPECT_EQ(Rendered("{{ 'abc'.rfind('abcd') }}"), "-1");
}

TEST(TemplateBoundsTest, WhatIsNotItselfIsAGroupOfItsOwn) {
  EXPECT_EQ(Rendered("{{ [{'k': 'nan'|float}, {'k': 'nan'|float}]"
                     "|groupby('k')|length }}"),
            "2");
}

TEST(TemplateBoundsTest, AnErrorQuotesWholeCharacters) {
  const std::string name = std::string(59, 'x') + Repeat("\xC3\xA9", 9);
  const std::string error = ErrorOf("{{ 1 " + name + " }}");
  EXPECT_TRUE(CheckUtf8(error).ok()) << error;
}

TEST(TemplateBoundsTest, ALongSourceIsRefused) {
  EXPECT_THAT(
      Template::Parse(Repeat("x", Template::kMaxSourceBytes + 1)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048576 bytes")));
  EXPECT_THAT(Template::Parse("\xff"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

}  // namespace
}  // namespace espalier::jinja
