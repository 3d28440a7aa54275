// Patterns of Oniguruma (its syntax for Ruby, which Hugging Face's tokenizers
// use) rewritten for PCRE2, so that they match the same:
//
//  - \s, \w, \d and \h, whose characters differ, become classes that are
//    spelt out (\w as two: it has ², ³, ¹, ¼, ½ and ¾ outside of brackets
//    alone); \b is built from \w; ^ and $ are of lines;
//  - \p{...} takes general categories and some scripts, of which PCRE2 would
//    take the extensions as well;
//  - groups capture nothing, as nothing refers to them;
//  - {n,m}+ repeats the repetition; {,m} begins at 0.
//
// Refused are back references, named groups, conditionals, classes inside of
// classes and &&, POSIX brackets, options other than i (and that one for
// letters where it may join several, such as ss and ß), and escapes that are
// not listed here.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace espalier {

// REQUIRES: `pattern` is UTF-8.
// Errors: kInvalidArgument naming what is not supported, and its byte.
absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern);

}  // namespace espalier
