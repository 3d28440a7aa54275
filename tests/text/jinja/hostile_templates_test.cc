// Errors of templates name their place, and templates that would cost too much
// end soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/text/jinja/template_errors.h"

namespace espalier::jinja {
namespace {

using ::testing::HasSubstr;

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
        BadTemplate{"{{ 'x'|indent(999999999, true) }}", kMemory},
        BadTemplate{"{{ '%999999999d' % 1 }}", "width or precision"},
        BadTemplate{"{{ '{:999999999}'.format(1) }}", "width or precision"},
        BadTemplate{"{{ [1]|tojson(indent=999999999) }}",
                    "indent may be 1000 at most"},
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

}  // namespace
}  // namespace espalier::jinja
