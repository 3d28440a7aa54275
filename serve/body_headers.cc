#include "serve/body_headers.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/shown_bytes.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

bool IsWord(std::string_view text, absl::string_view word) {
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(ToAbsl(text)), word);
}

// The charset that a media type names, without quotes; "" if it names none.
std::string_view CharsetOf(std::string_view content_type) {
  for (size_t at = content_type.find(';'); at < content_type.size();) {
    const size_t end = content_type.find(';', at + 1);
    std::string_view parameter = content_type.substr(at + 1, end - at - 1);
    at = end;
    const size_t sign = std::min(parameter.find('='), parameter.size());
    if (!IsWord(parameter.substr(0, sign), "charset")) continue;
    parameter.remove_prefix(std::min(sign + 1, parameter.size()));
    if (parameter.size() < 2 || parameter.front() != '"') return parameter;
    return parameter.substr(1, parameter.size() - 2);
  }
  return "";
}

// ASCII is a part of UTF-8.
bool IsUtf8Charset(std::string_view charset) {
  return charset.empty() || IsWord(charset, "utf-8") ||
         IsWord(charset, "utf8") || IsWord(charset, "us-ascii");
}

}  // namespace

std::optional<openai::Error> CheckBodyHeaders(
    const http::Request& request, std::vector<http::Header>* headers) {
  const auto refuse = [](std::string_view wanted, std::string_view given) {
    return openai::MakeHttpError(
        415, Concat("the header ", wanted, ", got ", BytesInQuotes(given)));
  };
  const std::string_view type = request.Find("content-type");
  if (!IsWord(type.substr(0, type.find(';')), "application/json")) {
    return refuse("Content-Type must be application/json", type);
  }
  if (!IsUtf8Charset(CharsetOf(type))) {
    return refuse("Content-Type must have the charset utf-8 or none", type);
  }
  const std::string_view coding = request.Find("content-encoding");
  if (coding.empty() || IsWord(coding, "identity")) return std::nullopt;
  headers->push_back({"Accept-Encoding", "identity"});
  return refuse(
      "Content-Encoding must be identity or left out, as bodies are not "
      "decompressed",
      coding);
}

}  // namespace espalier::serve
