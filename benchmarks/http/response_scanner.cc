#include "benchmarks/http/response_scanner.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/match.h"
#include "base/status.h"

namespace espalier::http_load {

namespace {

// Returns the value of a header in `head`; empty if it is missing.
std::string_view FindValue(std::string_view head, std::string_view name) {
  while (true) {
    const size_t end = head.find("\r\n");
    if (end == std::string_view::npos) return {};
    head.remove_prefix(end + 2);
    if (head.size() <= name.size() || head[name.size()] != ':' ||
        !absl::EqualsIgnoreCase(ToAbsl(head.substr(0, name.size())),
                                ToAbsl(name))) {
      continue;
    }
    std::string_view value = head.substr(name.size() + 1);
    value = value.substr(0, value.find("\r\n"));
    while (value.starts_with(' ')) value.remove_prefix(1);
    return value;
  }
}

template <typename T>
bool ReadNumber(std::string_view text, int base, T* value) {
  const auto result =
      std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return result.ec == std::errc();
}

}  // namespace

size_t ResponseScanner::Scan(std::string_view bytes) {
  size_t taken = 0;
  if (state_ == State::kHead) taken = ScanHead(bytes);
  while (state_ == State::kBody && taken < bytes.size()) {
    taken += ScanBody(bytes.substr(taken));
  }
  return taken;
}

void ResponseScanner::End() {
  const bool is_end =
      state_ == State::kBody && framing_ == Framing::kUntilClose;
  state_ = is_end ? State::kDone : State::kMalformed;
}

void ResponseScanner::Reset() { *this = ResponseScanner(); }

size_t ResponseScanner::ScanHead(std::string_view bytes) {
  const size_t before = text_.size();
  std::string_view head = bytes;
  if (before > 0) head = text_.append(bytes);
  const size_t end = head.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (before == 0) text_.assign(bytes);
    return bytes.size();
  }
  ReadHead(head.substr(0, end + 2));
  text_.clear();
  return end + 4 - before;
}

void ResponseScanner::ReadHead(std::string_view head) {
  state_ = State::kBody;
  if (head.size() < 12 || !ReadNumber(head.substr(9, 3), 10, &status_)) {
    state_ = State::kMalformed;
    return;
  }
  closes_ = FindValue(head, "Connection") == "close";
  const std::string_view length = FindValue(head, "Content-Length");
  if (FindValue(head, "Transfer-Encoding") == "chunked") {
    framing_ = Framing::kChunked;
  } else if (ReadNumber(length, 10, &left_)) {
    framing_ = Framing::kLength;
    if (left_ == 0) state_ = State::kDone;
  } else if (status_ == 204 || status_ == 304) {
    state_ = State::kDone;
  }
}

size_t ResponseScanner::ScanBody(std::string_view bytes) {
  if (framing_ == Framing::kUntilClose) {
    CountEvents(bytes);
    return bytes.size();
  }
  if (framing_ == Framing::kChunked && !in_chunk_) return ScanLine(bytes);
  const auto size =
      static_cast<size_t>(std::min<int64_t>(left_, std::ssize(bytes)));
  left_ -= static_cast<int64_t>(size);
  if (framing_ == Framing::kLength) {
    CountEvents(bytes.substr(0, size));
    if (left_ == 0) state_ = State::kDone;
    return size;
  }
  // The last two bytes of the chunk are its line end.
  const int64_t line_end = std::max<int64_t>(0, 2 - left_);
  const int64_t data =
      std::max<int64_t>(0, std::ssize(bytes.substr(0, size)) - line_end);
  CountEvents(bytes.substr(0, static_cast<size_t>(data)));
  if (left_ > 0) return size;
  in_chunk_ = false;
  if (is_last_chunk_) state_ = State::kDone;
  return size;
}

size_t ResponseScanner::ScanLine(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  if (end == std::string_view::npos) {
    text_.append(bytes);
    return bytes.size();
  }
  text_.append(bytes.substr(0, end));
  if (!ReadNumber(text_, 16, &left_)) state_ = State::kMalformed;
  text_.clear();
  is_last_chunk_ = left_ == 0;
  left_ += 2;
  in_chunk_ = true;
  return end + 1;
}

void ResponseScanner::CountEvents(std::string_view data) {
  for (const char byte : data) {
    if (byte == '\n' && after_line_end_) ++events_;
    after_line_end_ = byte == '\n' && !after_line_end_;
  }
}

}  // namespace espalier::http_load
