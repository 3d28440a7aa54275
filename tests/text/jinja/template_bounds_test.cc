// Bounds of a template's cost, and the units of steps and bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/status_matchers.h"
#include "tests/text/jinja/template_errors.h"

namespace espalier::jinja {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

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
       {"{{ [a, b]|sort|length }}", "{{ [a, b]|max|length }}", "{{ a == b }}",
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
  // The type of a key is checked without walking through it.
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
        "{{ 'a'.split(s) }}", "{{ 'a'.rpartition(s)[0] }}"}) {
    const std::string error = ErrorOf(begin + use + "{% endfor %}");
    EXPECT_THAT(error, HasSubstr(kMemory)) << use;
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

// Slow operations cost more steps or bytes.
TEST(TemplateBoundsTest, WhatIsSlowTakesMore) {
  const auto error_within = [](const std::string& source, int64_t steps,
                               int64_t bytes) {
    RenderOptions options;
    options.limits.steps = steps;
    options.limits.bytes = bytes;
    const auto text = Template::Parse(source).value()->Render({}, options);
    return text.ok() ? "no error" : Message(text.status());
  };
  constexpr int64_t kMany = 1'000'000;
  EXPECT_THAT(error_within("{{ range(4000)|length }}", 900, kMany),
              HasSubstr(kSteps));
  EXPECT_THAT(error_within("{% for i in range(4000) %}{% break %}{% endfor %}",
                           1900, kMany),
              HasSubstr(kSteps));
  EXPECT_THAT(error_within("{% macro m(a, b, c, d, e, f, g, h) %}{% endmacro %}"
                           "{{ m() }}",
                           30, kMany),
              HasSubstr(kSteps));
  for (const char* const use :
       {"{{ 'a'.strip('b' * 1000) }}", "{{ 'a'|trim('b' * 1000) }}"}) {
    EXPECT_THAT(error_within(use, kMany, 4900), HasSubstr(kMemory)) << use;
    EXPECT_EQ(error_within(use, kMany, 9000), "no error") << use;
  }
}

// Each field is looked for among all arguments.
TEST(TemplateBoundsTest, LookingForFieldsTakesSteps) {
  std::string names;
  for (int i = 0; i < 5'000; ++i) names += Concat(i == 0 ? "p" : ",p", i, "=1");
  EXPECT_THAT(ErrorOf("{% set d = dict(" + names +
                      ") %}{{ ('{p4999}' * 9000).format(**d) }}"),
              HasSubstr(kSteps));
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

TEST(TemplateBoundsTest, AnErrorQuotesWholeCharacters) {
  const std::string name = std::string(59, 'x') + Repeat("\xC3\xA9", 9);
  const std::string error = ErrorOf("{{ 1 " + name + " }}");
  EXPECT_TRUE(CheckUtf8(error).ok()) << error;
  EXPECT_THAT(ErrorOf("{{ '%és' % 'a' }}"),
              HasSubstr("format character 'é' is not supported"));
  EXPECT_THAT(ErrorOf("{{ '{:é}'.format('a') }}"),
              HasSubstr("format specification 'é' is not supported"));
  EXPECT_THAT(ErrorOf("{{ '{:df}'.format(1) }}"),
              HasSubstr("format specification 'df' is not supported"));
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
