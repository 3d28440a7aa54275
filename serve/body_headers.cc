#include "serve/body_headers.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/shown_bytes.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

bool IsWord(std::string_view text, absl::string_view word) {
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(ToAbsl(text)), word);
}

std::string_view Strip(std::string_view text) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(ToAbsl(text));
  return {stripped.data(), stripped.size()};
}

// Returns the end of the parameter that begins at `at`: the next semicolon that
// is not in quotes.
size_t EndOfParameter(std::string_view text, size_t at) {
  for (bool is_quoted = false; at < text.size(); ++at) {
    if (text[at] == '"') is_quoted = !is_quoted;
    if (text[at] == ';' && !is_quoted) break;
  }
  return at;
}

// The charsets that a media type names, without quotes.
std::vector<std::string_view> CharsetsOf(std::string_view content_type) {
  std::vector<std::string_view> charsets;
  size_t at = std::min(content_type.find(';'), content_type.size());
  while (at < content_type.size()) {
    const size_t end = EndOfParameter(content_type, at + 1);
    const std::string_view parameter =
        content_type.substr(at + 1, end - at - 1);
    at = end;
    const size_t sign = std::min(parameter.find('='), parameter.size());
    if (!IsWord(parameter.substr(0, sign), "charset")) continue;
    std::string_view value =
        Strip(parameter.substr(std::min(sign + 1, parameter.size())));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    charsets.push_back(value);
  }
  return charsets;
}

// ASCII is a part of UTF-8.
bool IsUtf8Charset(std::string_view charset) {
  return charset.empty() || IsWord(charset, "utf-8") ||
         IsWord(charset, "utf8") || IsWord(charset, "us-ascii") ||
         IsWord(charset, "ascii");
}

openai::Error Refuse(std::string_view wanted, std::string_view given) {
  return openai::MakeHttpError(
      415, Concat("the header ", wanted, ", got ", BytesInQuotes(given)));
}

}  // namespace

std::optional<openai::Error> CheckJsonHeaders(const http::Request& request) {
  const std::string_view type = request.Find("content-type");
  if (!IsWord(type.substr(0, type.find(';')), "application/json")) {
    return Refuse("Content-Type must be application/json", type);
  }
  if (!std::ranges::all_of(CharsetsOf(type), IsUtf8Charset)) {
    return Refuse("Content-Type must have the charset utf-8 or none", type);
  }
  return std::nullopt;
}

std::optional<openai::Error> CheckContentEncoding(
    const http::Request& request, std::vector<http::Header>* headers) {
  for (const http::Header& header : request.headers) {
    if (!IsWord(header.name, "content-encoding") || header.value.empty() ||
        IsWord(header.value, "identity")) {
      continue;
    }
    headers->push_back({"Accept-Encoding", "identity"});
    return Refuse(
        "Content-Encoding must be identity or left out, as bodies are not "
        "decompressed",
        header.value);
  }
  return std::nullopt;
}

}  // namespace espalier::serve
