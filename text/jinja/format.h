// str.format and % of strings, in the forms that chat templates use.
//
//   str.format   {} {0} {name}, each with
//   [:[[fill]align][0][width][,][.N][type]]
//                for an align of < > ^ and a type of d, f or s
//   %            %s %r %d %i %f, each with [(name)][-][0][width][.N]
//
// Other forms of Python are errors that say so.
#pragma once

#include "text/jinja/arguments.h"
#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

// Both throw TemplateError for an argument that is not there, a form that is
// not supported, and one that does not fit its value.
Text FormatBraces(const Text& format, const Arguments& arguments,
                  Budget& budget);
// `arguments` are a tuple, a dict for names, or the only value.
Text FormatPercent(const Text& format, const Value& arguments, Budget& budget);

}  // namespace espalier::jinja
