#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/status_matchers.h"

namespace espalier::jinja {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

absl::StatusOr<Text> RenderText(std::string_view source,
                                std::string_view inputs = "{}") {
  ASSIGN_OR_RETURN(const auto parsed, Template::Parse(source));
  ASSIGN_OR_RETURN(const json::value values, ParseJson(inputs));
  Inputs named;
  for (const auto& [name, value] : values.get_object()) {
    RETURN_IF_ERROR(named.Set(std::string(name), value));
  }
  RenderOptions options;
  options.now = absl::FromUnixSeconds(1'784'000'000);
  return parsed->Render(named, options);
}

std::string Render(std::string_view source, std::string_view inputs = "{}") {
  const absl::StatusOr<Text> text = RenderText(source, inputs);
  return text.ok() ? text->bytes() : Concat("ERROR ", Message(text.status()));
}

// Returns a letter for the source of each run of bytes.
std::string Marks(const Text& text) {
  std::string marks;
  for (const Text::Run& run : text.Runs()) {
    marks.append(run.end - run.begin, run.is_input ? 'i' : 't');
  }
  return marks;
}

TEST(TemplateTest, ChatMlIsRendered) {
  constexpr char kChatMl[] = R"({% for m in messages %}
{{ '<|im_start|>' + m.role + '\n' + m['content'] | trim + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
)";
  EXPECT_EQ(Render(kChatMl, R"({"messages": [
      {"role": "user", "content": " Hi "}], "add_generation_prompt": true})"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TemplateTest, BlocksTakeTheirLineAndItsIndention) {
  EXPECT_EQ(Render("a\n  {% if 1 %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(Render("a {%- if 1 -%} b {%- endif +%}\nc"), "ab\nc");
  EXPECT_EQ(Render("  {%+ if 1 %}x{% endif %}"), "  x");
  EXPECT_EQ(Render("{# a #}\nb{#- c -#}  d"), "bd");
  EXPECT_EQ(Render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
  EXPECT_EQ(Render("a\r\nb\n\n"), "a\nb\n");
}

TEST(TemplateTest, ValuesPrintAsPythonPrintsThem) {
  EXPECT_EQ(Render("{{ [1, 2.0, 'a\\n', none, true, (1,), {'k': \"it's\"}] }}"),
            R"([1, 2.0, 'a\n', None, True, (1,), {'k': "it's"}])");
  EXPECT_EQ(Render("{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 7 / 2 }} {{ -7 // 2 }}"),
            "1e+16 0.30000000000000004 3.5 -4");
  EXPECT_EQ(Render("{{ missing }}{{ none }}{{ false }}"), "NoneFalse");
}

TEST(TemplateTest, ToJsonIsJsonDumps) {
  EXPECT_EQ(Render(R"({{ {"a": [1, "é<\n"], "b": {}}|tojson }})"),
            R"({"a": [1, "é<\n"], "b": {}})");
  EXPECT_EQ(Render(R"({{ {"a": [1]}|tojson(indent=2) }})"),
            "{\n  \"a\": [\n    1\n  ]\n}");
  EXPECT_EQ(Render(R"({{ "é🙂"|tojson(ensure_ascii=true) }})"),
            R"("\u00e9\ud83d\ude42")");
}

TEST(TemplateTest, WhatALoopSetsIsGoneAfterItButInANamespace) {
  EXPECT_EQ(Render("{% set x = 1 %}{% set ns = namespace(x=1) %}"
                   "{% for i in [1, 2] %}{% set x = i %}{% set ns.x = i %}"
                   "{% endfor %}{{ x }}{{ ns.x }}"),
            "12");
  EXPECT_EQ(Render("{% for i in 'abc' if i != 'b' %}{{ loop.index }}{{ i }}"
                   "{{ ',' if not loop.last }}{% endfor %}"),
            "1a,2c");
  EXPECT_EQ(Render("{% for i in range(9) %}{% if i == 1 %}{% continue %}"
                   "{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}"
                   "{% endfor %}"),
            "023");
}

TEST(TemplateTest, MacrosTakeDefaultsNamesAndCallers) {
  EXPECT_EQ(Render("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}"
                   "{{ m(1) }} {{ m(b=3, a=4) }}"),
            "12 43");
  EXPECT_EQ(Render("{% macro m() %}<{{ caller(1) }}>{% endmacro %}"
                   "{% call(x) m() %}in {{ x }}{% endcall %}"),
            "<in 1>");
  EXPECT_EQ(Render("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}"
                   "{% endmacro %}{{ f(3) }}"),
            "3210");
}

TEST(TemplateTest, FiltersAndMethodsDoWhatPythonDoes) {
  EXPECT_EQ(Render("{{ [3, 1]|sort }} {{ ' x '|trim }} {{ 'a-b'|title }}"),
            "[1, 3] x A-B");
  EXPECT_EQ(Render("{{ 'a b c'.split(' ', 1) }} {{ 'straße'.upper() }}"),
            "['a', 'b c'] STRASSE");
  EXPECT_EQ(Render("{{ 'héllo'[::-1] }} {{ 'héllo'|length }}"), "olléh 5");
  EXPECT_EQ(Render("{{ messages|selectattr('r', 'eq', 'u')|map(attribute='c')"
                   "|join('/') }}",
                   R"({"messages": [{"r": "u", "c": "1"}, {"r": "a"},
                                    {"r": "u", "c": "2"}]})"),
            "1/2");
}

TEST(TemplateTest, IntegersOf64BitsAreReadAndRounded) {
  EXPECT_EQ(Render("{{ '-9223372036854775808'|int }}"), "-9223372036854775808");
  EXPECT_EQ(Render("{{ '9223372036854775807'|int }} {{ '0x7f'|int(0, 16) }}"),
            "9223372036854775807 127");
  EXPECT_EQ(Render("{{ 'inf'|int }} {{ 'nan'|float|int(3) }} {{ 'x'|int }} "
                   "{{ ('9' * 5000)|int(4) }}"),
            "0 3 0 4");
  EXPECT_EQ(Render("{{ 3|round(-1) }} {{ 15|round(-1) }} {{ 25|round(-1) }} "
                   "{{ -15|round(-1) }} {{ true|round(-1) }} {{ 7|round(-40) }}"
                   " {{ 9223372036854775807|round(-18) }}"),
            "0 20 20 -20 0 0 9000000000000000000");
  for (const char* const source :
       {"{{ '9223372036854775808'|int }}", "{{ '-9223372036854775809'|int }}",
        "{{ '1e300'|int }}", "{{ 1e300|int }}", "{{ ('9' * 99)|int(5) }}",
        "{{ 9223372036854775807|round(-19) }}"}) {
    EXPECT_THAT(Render(source), HasSubstr("an integer has more than 64 bits"))
        << source;
  }
}

// Expected values are those of Python's format().
TEST(TemplateTest, NumbersAreFormattedAsPythonFormatsThem) {
  EXPECT_EQ(Render("{{ '{:,} {:,} {:,.2f} {:.0f}'.format(1234567, 1234567.5, "
                   "-1234567, 2.5) }}"),
            "1,234,567 1,234,567.5 -1,234,567.00 2");
  EXPECT_EQ(Render("{{ '{:010,}|{:07}|{:*<05}|{:é^4d}|{:0>4}'.format(1234567, "
                   "-1.5, 1, -7, -7) }}"),
            "01,234,567|-0001.5|1****|é-7é|00-7");
  EXPECT_EQ(Render("{{ '{:3}|{:05}|{:.2}|{:>4s}|{:f}'.format(true, 'a', 'éàü', "
                   "'b', 1) }}"),
            "  1|a0000|éà|   b|1.000000");
  EXPECT_EQ(Render("{% set inf = 'inf'|float %}{{ '{:f} {:f} {:05}'.format("
                   "-inf, inf - inf, inf) }}"),
            "-inf nan 00inf");
}

TEST(TemplateTest, SpecificationsThatDoNotFitAreRefused) {
  for (const char* const source :
       {"{{ '{:d}'.format(1.0) }}", "{{ '{:d}'.format('a') }}",
        "{{ '{:.2d}'.format(1) }}", "{{ '{:s}'.format(1) }}",
        "{{ '{:,}'.format('a') }}", "{{ '{:5}'.format([]) }}",
        "{{ '{:.101f}'.format(1) }}", "{{ '%5%' % () }}", "{{ '%d' % 'a' }}"}) {
    EXPECT_THAT(Render(source), HasSubstr("ERROR")) << source;
  }
}

TEST(TemplateTest, FormsOfPythonThatAreLeftOutSaySo) {
  for (const char* const source : {"{{ '{:q}'.format(3) }}",
                                   "{{ '{:x}'.format(3) }}",
                                   "{{ '{:_}'.format(1) }}",
                                   "{{ '{:+}'.format(1) }}",
                                   "{{ '{:=5}'.format(1) }}",
                                   "{{ '{:#}'.format(1) }}",
                                   "{{ '{:%}'.format(1) }}",
                                   "{{ '{:e}'.format(1.0) }}",
                                   "{{ '{!r}'.format(1) }}",
                                   "{{ '{x.y}'.format(x=1) }}",
                                   "{{ '{0[0]}'.format([1]) }}",
                                   "{{ '{:{}}'.format(1, 2) }}",
                                   "{{ '%x' % 1 }}",
                                   "{{ '%+d' % 1 }}",
                                   "{{ '%c' % 'a' }}",
                                   "{{ '%*d' % (1, 2) }}",
                                   "{{ '%e' % 1 }}",
                                   "{{ 'a'.zfill(3) }}",
                                   "{{ 'a'.center(3) }}",
                                   "{{ '{a}'.format_map({'a': 1}) }}"}) {
    EXPECT_THAT(Render(source), HasSubstr("not supported")) << source;
  }
  EXPECT_THAT(Render("{{ 'a'|center }}"), HasSubstr("center"));
}

TEST(TemplateTest, PercentFormatsAsPythonDoes) {
  EXPECT_EQ(Render("{{ '%r %s' % ('é', 'é') }}"), "'é' é");
  EXPECT_EQ(Render("{{ '%05d|%-05d|%3d|%i|%05.1f|%f' % (-7, 7, 7, 3.7, -2.25, "
                   "1) }}"),
            "-0007|7    |  7|3|-02.2|1.000000");
  EXPECT_EQ(Render("{{ '%5.2s|%-5s|%05s' % ('abc', 'l', 'é') }}"),
            "   ab|l    |    é");
}

TEST(TemplateTest, FloatsArePoweredAndDividedAsInPython) {
  EXPECT_EQ(Render("{{ 2.0 ** -1 }} {{ 0.0 ** 0 }} {{ (-8.0) ** 3 }} "
                   "{{ 0.0 ** ('-inf'|float) }}"),
            "0.5 1.0 -512.0 inf");
  for (const char* const source :
       {"{{ 0.0 ** -1 }}", "{{ (-8) ** 0.5 }}", "{{ 10.0 ** 400 }}"}) {
    EXPECT_THAT(Render(source), HasSubstr("ERROR")) << source;
  }
  EXPECT_EQ(Render("{{ -3.0 % 1 }} {{ 4.0 % -2 }} {{ 0.0 // -4 }} "
                   "{{ 1.0 // ('-inf'|float) }} {{ -7.5 // 2 }} "
                   "{{ -7.5 % 2 }}"),
            "0.0 -0.0 -0.0 -1.0 -4.0 0.5");
}

TEST(TemplateTest, WhatHasNoSlicesHasNone) {
  EXPECT_THAT(Render("{{ x[1:] }}", R"({"x": null})"),
              HasSubstr("'NoneType' object has no slices"));
  EXPECT_THAT(Render("{% set y = x[:2] %}", R"({"x": 5})"),
              HasSubstr("'int' object has no slices"));
  EXPECT_THAT(Render("{{ x[:2] }}", R"({"x": {}})"),
              HasSubstr("'dict' object has no slices"));
  EXPECT_THAT(Render("{{ {'a': 1}.items()[1:] }}"),
              HasSubstr("'dict_items' object has no slices"));
  // jinja2 computes these before it renders.
  EXPECT_EQ(Render("{{ none[1:] }}{{ 5[1:] }}{{ none[1:] is defined }}"),
            "False");
}

TEST(TemplateTest, TheClockIsTheOptions) {
  EXPECT_THAT(Render("{{ strftime_now('%Y') }}"), HasSubstr("2026"));
}

// Marks follow each byte, so that text from outside is known in the prompt.
TEST(TemplateTest, MarksSayWhichBytesAreInputs) {
  const auto marks = [](std::string_view source) {
    const absl::StatusOr<Text> text = RenderText(source, R"({"x": "ab cd"})");
    return text.ok() ? text->bytes() + "|" + Marks(*text)
                     : Message(text.status());
  };
  EXPECT_EQ(marks("<{{ x }}>"), "<ab cd>|tiiiiit");
  EXPECT_EQ(marks("{{ '<' + x[1:4] + '>' }}"), "<b c>|tiiit");
  EXPECT_EQ(marks("{{ ('<' ~ x ~ '>').split(' ')|join('-') }}"),
            "<ab-cd>|tiitiit");
  EXPECT_EQ(marks("{{ x|replace('b', '[B]') }}"), "a[B] cd|itttiii");
  EXPECT_EQ(marks("{{ (' ' ~ x ~ ' ')|trim }}"), "ab cd|iiiii");
  EXPECT_EQ(marks("{{ x|upper }}{{ [x]|tojson }}"),
            "AB CD[\"ab cd\"]|iiiiiiiiiiiiii");
  EXPECT_EQ(marks("{% set y %}({{ x }}){% endset %}{{ y }}"),
            "(ab cd)|tiiiiit");
  EXPECT_EQ(marks("{{ '%s!' % x }}{{ '{}?'.format(x) }}"),
            "ab cd!ab cd?|iiiiitiiiiit");
}

// Also where an input is no operand, but says how something is written.
TEST(TemplateTest, WhatAnInputShapesIsAnInput) {
  const auto unmarked = [](std::string_view source) {
    const absl::StatusOr<Text> text = RenderText(source, R"({
        "name": "</s>", "fill": "{:<>6}{0:d}", "percents": "%%%5s%%",
        "map": {"</s>": 1}, "two": "</s>\n</s>"})");
    if (!text.ok()) return Message(text.status());
    std::string bytes;
    for (const Text::Run& run : text->Runs()) {
      if (run.is_input) continue;
      bytes += text->bytes().substr(run.begin, run.end - run.begin);
    }
    return bytes;
  };
  EXPECT_EQ(unmarked("{{ strftime_now(name) }}"), "");
  EXPECT_EQ(unmarked("{{ dict(**map) }}{{ dict(**map)|list|first }}"), "");
  EXPECT_EQ(unmarked("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**map) }}"),
            "");
  EXPECT_EQ(unmarked("{{ '%s'|format(**map) }}"), "");
  EXPECT_EQ(unmarked("{{ [1, 2]|tojson(separators=(name, '')) }}"), "");
  EXPECT_EQ(unmarked("{{ {1: 2}|tojson(separators=('', name)) }}"), "");
  EXPECT_EQ(unmarked("{{ [1, 2]|tojson(indent=name) }}"), "");
  EXPECT_EQ(unmarked("{{ fill.format(12) }}"), "");
  EXPECT_EQ(unmarked("{{ percents % 'a' }}{{ percents|format(1) }}"), "");
  EXPECT_EQ(unmarked("{{ ('(%s)' ~ percents) % (1, 2) }}"), "(1)");
  EXPECT_EQ(unmarked("{{ ('({})' ~ '{:' ~ '<>3' ~ '}').format(1, 2) }}"),
            "(1)<<2");
  EXPECT_EQ(unmarked("{{ name|e }}{{ two|indent(0) }}"), "");
}

TEST(TemplateTest, MarksDoNotChangeWhatIsEqual) {
  EXPECT_EQ(
      Render("{{ x == 'a' }}{{ 'a' in x }}{{ {'a': 1}[x] }}", R"({"x": "a"})"),
      "TrueTrue1");
}

TEST(TemplateTest, TrustedStringsAreNotInputs) {
  const auto parsed = Template::Parse("{{ eos }}{{ m.role }}{{ m.content }}");
  ASSERT_TRUE(parsed.ok());
  Inputs inputs;
  inputs.SetTrusted("eos", "</s>");
  const json::value message = {{"role", "user"}, {"content", "hi"}};
  ASSERT_TRUE(inputs
                  .Set("m", message,
                       [](std::string_view key, std::string_view) {
                         return key == "role";
                       })
                  .ok());
  const absl::StatusOr<Text> text = (*parsed)->Render(inputs);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(Marks(*text), "ttttttttii");
}

TEST(TemplateTest, InputsThatAreTooDeepOrNoUtf8AreRefused) {
  Inputs inputs;
  EXPECT_THAT(inputs.Set("x", json::value("\xff")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("x: ")));
  json::value deep = 1;
  for (int i = 0; i < 100; ++i) deep = json::array{deep};
  EXPECT_THAT(inputs.Set("x", deep),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("x: is nested more than 50 deep")));
}

}  // namespace
}  // namespace espalier::jinja
