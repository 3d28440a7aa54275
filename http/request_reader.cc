#include "http/request_reader.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace espalier::http {

namespace {

// Bytes that are allocated of a body before they have come.
constexpr uint64_t kMostReserved = 64 << 10;

Refusal BadBytes() {
  return {
      400,
      "the header has a control character, a bare CR or LF, or a folded line"};
}

NamedLimit HeaderBytes(const Limits& limits) {
  return {limits.max_header_bytes, limits.names.max_header_bytes};
}

NamedLimit Headers(const Limits& limits) {
  return {limits.max_headers, limits.names.max_headers};
}

}  // namespace

RequestReader::RequestReader(const Limits* limits,
                             const StreamedBodyLimit* streamed_limit)
    : limits_(limits), streamed_limit_(streamed_limit) {}

size_t RequestReader::Read(std::string_view bytes) {
  size_t taken = 0;
  if (state_ == State::kEmpty) taken = SkipLineEnds(bytes);
  if (state_ == State::kHead) taken += ReadHead(bytes.substr(taken));
  if (state_ == State::kBody) taken += ReadBody(bytes.substr(taken));
  return taken;
}

size_t RequestReader::SkipLineEnds(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (skips_lf_ != (bytes[i] == '\n')) {
      Refuse(BadBytes());
      return i;
    }
    skips_lf_ = bytes[i] == '\r';
    if (!skips_lf_ && bytes[i] != '\n') {
      state_ = State::kHead;
      return i;
    }
  }
  return bytes.size();
}

size_t RequestReader::ReadHead(std::string_view bytes) {
  // One more than allowed, so that the limit is noticed where it is passed.
  const int64_t most = limits_->max_header_bytes - std::ssize(head_text_) + 1;
  const size_t taken = scanner_.Scan(bytes.substr(0, most));
  const bool is_end = scanner_.state() == LineScanner::State::kEnd;
  if (scanner_.state() == LineScanner::State::kBad) {
    Refuse(BadBytes());
  } else if (taken == most) {
    Refuse({431, Concat("the request line and headers ",
                        MustHaveAtMost(HeaderBytes(*limits_), "bytes"))});
  } else if (is_end && head_text_.empty()) {
    BeginBody(bytes.substr(0, taken));
  } else {
    head_text_.append(bytes, 0, taken);
    if (is_end) BeginBody(head_text_);
  }
  return taken;
}

void RequestReader::BeginBody(std::string_view head_text) {
  if (const auto refusal =
          ParseRequestHead(head_text, Headers(*limits_), &head_)) {
    return Refuse(*refusal);
  }
  head_text_ = std::string();
  NamedLimit most = {limits_->max_body_bytes, limits_->names.max_body_bytes};
  if (streamed_limit_ != nullptr && *streamed_limit_ != nullptr) {
    const std::optional<NamedLimit> limit = (*streamed_limit_)(head_.request);
    is_streamed_ = limit.has_value();
    if (limit) most = *limit;
  }
  content_length_ = head_.content_length;
  if (head_.is_chunked) {
    chunks_.emplace(HeaderBytes(*limits_), most);
  } else if (content_length_ > static_cast<uint64_t>(most.value)) {
    return Refuse(
        {413, Concat("the body ",
                     MustHaveAtMost(most, "bytes", Concat(content_length_)))});
  } else {
    head_.request.body.reserve(std::min(content_length_, kMostReserved));
  }
  state_ =
      head_.is_chunked || content_length_ > 0 ? State::kBody : State::kDone;
}

size_t RequestReader::ReadBody(std::string_view bytes) {
  std::string& body = head_.request.body;
  if (!chunks_.has_value()) {
    const uint64_t left =
        content_length_ - static_cast<uint64_t>(num_body_bytes_);
    const size_t taken = std::min<uint64_t>(left, bytes.size());
    body.append(bytes, 0, taken);
    num_body_bytes_ += static_cast<int64_t>(taken);
    if (taken == left) state_ = State::kDone;
    return taken;
  }
  const size_t before = body.size();
  const size_t taken = chunks_->Decode(bytes, &body);
  num_body_bytes_ += static_cast<int64_t>(body.size() - before);
  if (chunks_->refusal().has_value()) {
    Refuse(*chunks_->refusal());
  } else if (chunks_->is_done()) {
    state_ = State::kDone;
  }
  return taken;
}

void RequestReader::Refuse(Refusal refusal) {
  state_ = State::kRefused;
  refusal_ = std::move(refusal);
}

}  // namespace espalier::http
