#include "examples/cli/input/language_text.h"

#include <cstddef>

#include "base/file.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "constrain/json_whitespace.h"

namespace espalier::cli {
namespace {

constexpr size_t kMaxLanguageBytes = 16 << 20;

}  // namespace

bool IsSchemaText(std::string_view value) {
  const size_t begin = value.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && value[begin] == '{';
}

absl::StatusOr<std::string> ReadSchema(const std::string& value) {
  if (IsSchemaText(value)) return value;
  return ReadFile(value, kMaxLanguageBytes);
}

bool IsGrammarText(std::string_view value) {
  return value.find("::=") != std::string_view::npos;
}

absl::StatusOr<std::string> ReadGrammar(const std::string& value) {
  if (IsGrammarText(value)) return value;
  return ReadFile(value, kMaxLanguageBytes);
}

bool IsWhitespacePattern(std::string_view value) {
  return value != "bounded" && value != "none";
}

absl::Status CheckWhitespaceText(const std::string& value) {
  if (!IsWhitespacePattern(value)) return absl::OkStatus();
  const absl::Status status = CompileJsonWhitespace(value).status();
  if (status.ok()) return absl::OkStatus();
  return InvalidArgument(
      "must be bounded, none or a regular expression of white space: ",
      Message(status), ", got ", BytesInQuotes(value));
}

}  // namespace espalier::cli
