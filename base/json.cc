#include "base/json.h"

#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/json_scan.h"
#include "base/status.h"

namespace espalier {
namespace {

// Length of the UTF-8 sequence at the start of `text`, 0 if malformed
// (Unicode 15, table 3-7).
size_t Utf8Length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  auto continues = [&](size_t i, int low = 0x80, int high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const int lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const int low = lead == 0xE0 ? 0xA0 : 0x80;
    const int high = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const int low = lead == 0xF0 ? 0x90 : 0x80;
    const int high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool AreAscii(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080) == 0;
}

// Returns the index of the first malformed byte of `text`, or npos.
size_t FindBadUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (text.size() - i >= 8 && AreAscii(text.data() + i)) {
      i += 8;
      continue;
    }
    const size_t length = Utf8Length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::string_view::npos;
}

// Returns `text` with quotes around the numbers that JSON lacks.
std::string QuoteNonFinite(std::string_view text) {
  std::string quoted;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    std::string_view next = text.substr(i, 1);
    if (in_string && next == "\\") next = text.substr(i, 2);
    if (next == "\"") in_string = !in_string;
    for (const std::string_view name : {"NaN", "-Infinity", "Infinity"}) {
      if (in_string || !text.substr(i).starts_with(name)) continue;
      const size_t after = text.find_first_not_of(" \t\r\n", i + name.size());
      const bool is_key = after != text.npos && text[after] == ':';
      if (!is_key) next = name;
    }
    i += next.size();
    const bool is_name = !in_string && next.size() > 1;
    quoted.append(is_name ? "\"" : "").append(next);
    if (is_name) quoted += '"';
  }
  return quoted;
}

void Append(const json::value& value, std::string& out);

// A float or a double.
template <typename Float>
void AppendNumber(Float value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  const std::string_view text(buffer, end - buffer);
  out += text;
  // A number that came as 4.0 stays a floating-point number.
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void AppendArray(const json::array& array, std::string& out) {
  out += '[';
  for (size_t i = 0; i < array.size(); ++i) {
    if (i > 0) out += ", ";
    Append(array[i], out);
  }
  out += ']';
}

void AppendObject(const json::object& object, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : object) {
    if (!first) out += ", ";
    first = false;
    out += json::serialize(json::string_view(key));
    out += ": ";
    Append(value, out);
  }
  out += '}';
}

void Append(const json::value& value, std::string& out) {
  switch (value.kind()) {
    case json::kind::array:
      return AppendArray(value.get_array(), out);
    case json::kind::object:
      return AppendObject(value.get_object(), out);
    case json::kind::double_:
      return AppendNumber(value.get_double(), out);
    default:
      out += json::serialize(value);
  }
}

}  // namespace

bool IsUtf8(std::string_view text) {
  return FindBadUtf8(text) == std::string_view::npos;
}

absl::Status CheckUtf8(std::string_view text) {
  const size_t bad = FindBadUtf8(text);
  if (bad == std::string_view::npos) return absl::OkStatus();
  return InvalidArgument("not UTF-8 at byte ", bad);
}

absl::StatusOr<json::value> ParseJson(std::string_view text) {
  RETURN_IF_ERROR(CheckUtf8(text));
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::stream_parser parser({}, options);
  json::error_code error;
  const size_t consumed = parser.write(text.data(), text.size(), error);
  if (!error) parser.finish(error);
  if (error) {
    // The scanner has better error messages than Boost.JSON.
    const auto passed = [](int, std::string_view, const JsonText&) {};
    RETURN_IF_ERROR(ScanJson(text, 0, passed).status());
    return InvalidArgument("not JSON at byte ", consumed, ": ",
                           error.message());
  }
  return parser.release();
}

absl::StatusOr<json::value> ParsePythonJson(std::string_view text) {
  absl::StatusOr<json::value> value = ParseJson(text);
  const bool may_have_names = text.find("NaN") != std::string_view::npos ||
                              text.find("Infinity") != std::string_view::npos;
  if (value.ok() || !may_have_names) return value;
  absl::StatusOr<json::value> quoted = ParseJson(QuoteNonFinite(text));
  return quoted.ok() ? std::move(quoted) : std::move(value);
}

std::string WriteJson(const json::value& value) {
  std::string out;
  Append(value, out);
  return out;
}

void AppendJson(std::string_view text, std::string* out) {
  *out += json::serialize(json::string_view(text));
}

void AppendJson(double value, std::string* out) { AppendNumber(value, *out); }

void AppendJson(float value, std::string* out) { AppendNumber(value, *out); }

void AppendJson(int64_t value, std::string* out) {
  char buffer[24];
  out->append(buffer, std::to_chars(buffer, std::end(buffer), value).ptr);
}

std::string Shown(std::string_view text) {
  constexpr size_t kLimit = 60;
  if (text.size() <= kLimit) return std::string(text);
  size_t end = kLimit;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string Shown(const json::value* value) {
  return value == nullptr ? "nothing" : Shown(WriteJson(*value));
}

std::string ShownInQuotes(std::string_view text) {
  // A text may be long, and more would not be shown.
  constexpr size_t kMost = 64;
  return Shown(WriteJson(json::value(text.substr(0, kMost))));
}

json::value JsonFloat(float value) {
  if (!std::isfinite(value)) return nullptr;
  char buffer[32];
  *std::to_chars(buffer, buffer + sizeof(buffer) - 1, value).ptr = '\0';
  return std::strtod(buffer, nullptr);
}

}  // namespace espalier
