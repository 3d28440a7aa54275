#include "base/option_error.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/cord.h"

namespace espalier {
namespace {

// The message with its parts: each between two marks, its kind first.
constexpr char kParts[] = "espalier/option_error";
constexpr char kMark = '\x1f';

int64_t Number(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Words of C++ where there are none.
std::string Shown(std::string_view part, const OptionWords* words) {
  const char kind = part.empty() ? ' ' : part.front();
  const std::string_view value = part.substr(part.empty() ? 0 : 1);
  const int64_t unit = words == nullptr ? 1 : words->unit_bytes;
  switch (kind) {
    case 'n':
      return words == nullptr ? std::string(value) : words->name(value);
    case 'h':
      return words == nullptr ? "" : words->name(value);
    case 't':  // text of a hint
      return words == nullptr ? "" : std::string(value);
    case 's':
      return Concat((Number(value) + unit - 1) / unit, " ",
                    words == nullptr ? "bytes" : words->unit);
    case 'v':
      return std::to_string(Number(value) / unit);
  }
  return "";
}

std::string Shown(const std::string& parts, const OptionWords* words) {
  std::string text;
  for (size_t at = 0; at < parts.size();) {
    const size_t begin = std::min(parts.find(kMark, at), parts.size());
    text += parts.substr(at, begin - at);
    if (begin == parts.size()) break;
    const size_t end = std::min(parts.find(kMark, begin + 1), parts.size());
    text += Shown(std::string_view(parts).substr(begin + 1, end - begin - 1),
                  words);
    at = end + 1;
  }
  return text;
}

// The message with its parts; without any of an error that has none.
std::string PartsOf(const absl::Status& status) {
  const auto parts = status.GetPayload(kParts);
  return parts.has_value() ? std::string(*parts) : Message(status);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, OptionName part) {
  return out << kMark << 'n' << part.field << kMark;
}
std::ostream& operator<<(std::ostream& out, MemorySize part) {
  return out << kMark << 's' << part.bytes << kMark;
}
std::ostream& operator<<(std::ostream& out, MemoryValue part) {
  return out << kMark << 'v' << part.bytes << kMark;
}
std::ostream& operator<<(std::ostream& out, OptionHint part) {
  return out << kMark << 't' << part.before << kMark << kMark << 'h'
             << part.field << kMark << kMark << 't' << part.after << kMark;
}

absl::Status MakeOptionError(absl::StatusCode code, const std::string& parts) {
  absl::Status error = MakeError(code, Shown(parts, nullptr));
  error.SetPayload(kParts, absl::Cord(parts));
  return error;
}

namespace {

absl::Status MarkedAs(const absl::Status& status, absl::Status error) {
  return IsPermanent(status) ? MarkPermanent(std::move(error)) : error;
}

}  // namespace

absl::Status AnnotateOption(const absl::Status& status,
                            std::string_view field) {
  if (status.ok()) return status;
  return MarkedAs(status, OptionError(status.code(), OptionName{field}, ": ",
                                      PartsOf(status)));
}

absl::Status InWordsOf(const OptionWords& words, const absl::Status& status) {
  if (status.ok() || !status.GetPayload(kParts).has_value()) return status;
  return WithMessage(status, Shown(PartsOf(status), &words));
}

}  // namespace espalier
