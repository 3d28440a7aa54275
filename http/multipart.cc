#include "http/multipart.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/shown_bytes.h"
#include "base/status.h"

namespace espalier::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kMaxBoundaryBytes = 70;

std::string_view Strip(std::string_view text) {
  return ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
}

// Reads the value of a header's parameter: a token, or a quoted string, in
// which a backslash escapes a quote or a backslash. `*rest` receives the text
// after it.
std::string TakeValue(std::string_view* rest) {
  std::string value;
  if (!rest->starts_with('"')) {
    const size_t end = std::min(rest->find(';'), rest->size());
    value = Strip(rest->substr(0, end));
    rest->remove_prefix(end);
    return value;
  }
  size_t i = 1;
  for (; i < rest->size() && (*rest)[i] != '"'; ++i) {
    const bool is_escaped = (*rest)[i] == '\\' && i + 1 < rest->size() &&
                            ((*rest)[i + 1] == '"' || (*rest)[i + 1] == '\\');
    if (is_escaped) ++i;
    value += (*rest)[i];
  }
  rest->remove_prefix(std::min(i + 1, rest->size()));
  return value;
}

// The parameter `name` of the value of a header; empty if there is none.
std::string FindParameter(std::string_view header, std::string_view name) {
  std::string_view rest =
      header.substr(std::min(header.find(';'), header.size()));
  while (rest.starts_with(';')) {
    rest.remove_prefix(1);
    const size_t sign = rest.find_first_of("=;");
    if (sign == rest.npos) return "";
    const std::string_view key = Strip(rest.substr(0, sign));
    const bool has_value = rest[sign] == '=';
    rest.remove_prefix(has_value ? sign + 1 : sign);
    std::string value = has_value ? TakeValue(&rest) : "";
    if (absl::EqualsIgnoreCase(ToAbsl(key), ToAbsl(name))) return value;
    rest.remove_prefix(std::min(rest.find(';'), rest.size()));
  }
  return "";
}

// The value of the header of this name; empty if there is none. Each line
// begins with its line end.
std::string FindHeaderLine(std::string_view lines, std::string_view name) {
  while (!lines.empty()) {
    lines.remove_prefix(std::min(kLineEnd.size(), lines.size()));
    const std::string_view line = lines.substr(0, lines.find(kLineEnd));
    const size_t colon = std::min(line.find(':'), line.size());
    if (absl::EqualsIgnoreCase(ToAbsl(line.substr(0, colon)), ToAbsl(name))) {
      return std::string(Strip(line.substr(std::min(colon + 1, line.size()))));
    }
    lines.remove_prefix(line.size());
  }
  return "";
}

// True if the value of a header begins with this word.
bool IsOfKind(std::string_view header, std::string_view kind) {
  return absl::EqualsIgnoreCase(
      ToAbsl(Strip(header.substr(0, header.find(';')))), ToAbsl(kind));
}

}  // namespace

absl::StatusOr<std::string> BoundaryOf(std::string_view content_type) {
  std::string boundary = FindParameter(content_type, "boundary");
  if (!IsOfKind(content_type, "multipart/form-data") || boundary.empty() ||
      boundary.size() > kMaxBoundaryBytes) {
    return InvalidArgument(
        "Content-Type must be multipart/form-data with a boundary of 1 to ",
        kMaxBoundaryBytes, " bytes, got ", BytesInQuotes(content_type));
  }
  return boundary;
}

MultipartReader::MultipartReader(std::string_view boundary,
                                 FormHandler* handler)
    : delimiter_(Concat(kLineEnd, "--", boundary)),
      handler_(handler),
      // The first boundary need not follow a line end.
      kept_(kLineEnd) {}

absl::Status MultipartReader::Read(std::string_view bytes) {
  kept_ += bytes;
  needs_more_ = false;
  // The epilogue is ignored.
  while (!needs_more_ && state_ != State::kEnd) {
    switch (state_) {
      case State::kBoundary:
        RETURN_IF_ERROR(ReadBoundaryEnd());
        break;
      case State::kHeaders:
        RETURN_IF_ERROR(ReadHeaders());
        break;
      default:
        RETURN_IF_ERROR(ReadContent());
    }
  }
  if (state_ == State::kEnd) begin_ = kept_.size();
  kept_.erase(0, std::exchange(begin_, 0));
  return absl::OkStatus();
}

absl::Status MultipartReader::End() const {
  if (state_ == State::kEnd) return absl::OkStatus();
  return InvalidArgument("the form ends before its last boundary");
}

absl::Status MultipartReader::ReadBoundaryEnd() {
  // Spaces may stand after it.
  const size_t at = std::min(rest().find_first_not_of(" \t"), rest().size());
  if (at > kMaxHeaderBytes) {
    return InvalidArgument("a boundary of the form has no end");
  }
  const std::string_view end = rest().substr(at, kLineEnd.size());
  needs_more_ = end.size() < kLineEnd.size();
  if (needs_more_) return absl::OkStatus();
  if (end != "--" && end != kLineEnd) {
    return InvalidArgument("a boundary of the form is followed by ",
                           BytesInQuotes(end));
  }
  state_ = end == "--" ? State::kEnd : State::kHeaders;
  // The line end is that before the first header.
  begin_ += at;
  return absl::OkStatus();
}

absl::Status MultipartReader::ReadHeaders() {
  constexpr std::string_view kHeadersEnd = "\r\n\r\n";
  const size_t size = rest().find(kHeadersEnd);
  needs_more_ = size == std::string_view::npos;
  // Without their end, whose bytes but the last may be there already.
  const bool is_too_large =
      needs_more_ ? rest().size() > kMaxHeaderBytes + kHeadersEnd.size() - 1
                  : size > kMaxHeaderBytes;
  if (is_too_large) {
    return InvalidArgument("the headers of a field must have at most ",
                           kMaxHeaderBytes, " bytes, got more");
  }
  if (needs_more_) return absl::OkStatus();
  const std::string disposition =
      FindHeaderLine(rest().substr(0, size), "content-disposition");
  const std::string name = FindParameter(disposition, "name");
  if (!IsOfKind(disposition, "form-data") || name.empty()) {
    return InvalidArgument("a field of the form has no name, got ",
                           BytesInQuotes(disposition));
  }
  if (++num_fields_ > kMaxFields) {
    return InvalidArgument("the form must have at most ", kMaxFields,
                           " fields, got more");
  }
  begin_ += size + kHeadersEnd.size();
  has_field_ = true;
  state_ = State::kContent;
  return handler_->BeginField(name, FindParameter(disposition, "filename"));
}

absl::Status MultipartReader::ReadContent() {
  const size_t end = rest().find(delimiter_);
  const bool is_end = end != std::string_view::npos;
  // The last bytes may begin a delimiter: they are kept.
  const size_t size =
      is_end ? end
             : rest().size() - std::min(rest().size(), delimiter_.size() - 1);
  const std::string_view content = rest().substr(0, size);
  begin_ += size;
  if (is_end) {
    begin_ += delimiter_.size();
    state_ = State::kBoundary;
  }
  needs_more_ = !is_end;
  if (!has_field_ || content.empty()) return absl::OkStatus();
  return handler_->AddToField(content);
}

}  // namespace espalier::http
