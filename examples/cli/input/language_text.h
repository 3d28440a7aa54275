// The schema or grammar of an option: the option's value itself, as llama.cpp
// takes it, or a file's text; and the white space of a schema's texts.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier::cli {

// A value that begins with "{" is a schema, others are files of one. A file of
// such a name is given as ./{name.
bool IsSchemaText(std::string_view value);
// Errors: as ReadFile; a file of more than 16 MiB is not read.
absl::StatusOr<std::string> ReadSchema(const std::string& value);

// A value with "::=" is a grammar, others are files of one.
bool IsGrammarText(std::string_view value);
// Errors: as of ReadSchema.
absl::StatusOr<std::string> ReadGrammar(const std::string& value);

// True if a value of --whitespace is a regular expression.
bool IsWhitespacePattern(std::string_view value);
// Errors: kInvalidArgument for a value of --whitespace that is neither
// "bounded", "none" nor a regular expression of white space.
absl::Status CheckWhitespaceText(const std::string& value);

}  // namespace espalier::cli
