#include "http/chunk_decoder.h"

#include <algorithm>
#include <limits>

#include "base/status.h"

namespace espalier::http {

namespace {

constexpr std::string_view kMalformed = "a chunk of the body is malformed";

// -1 if it is none.
int HexDigit(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

}  // namespace

size_t ChunkDecoder::Decode(std::string_view bytes, std::string* body) {
  size_t taken = 0;
  while (taken < bytes.size() && !is_done() && !refusal_.has_value()) {
    if (state_ == State::kData) {
      const size_t count = std::min<uint64_t>(size_, bytes.size() - taken);
      body->append(bytes, taken, count);
      taken += count;
      size_ -= count;
      if (size_ == 0) state_ = State::kDataCr;
    } else if (state_ == State::kTrailers) {
      taken += TakeTrailers(bytes.substr(taken));
    } else if (state_ == State::kSizeLf) {
      Expect('\n', bytes[taken++], State::kData);
      EndLine();
    } else {
      TakeOfLine(bytes[taken++]);
    }
  }
  return taken;
}

void ChunkDecoder::TakeOfLine(char byte) {
  switch (state_) {
    case State::kDataCr:
      return Expect('\r', byte, State::kDataLf);
    case State::kDataLf:
      return Expect('\n', byte, State::kFirstDigit);
    case State::kFirstDigit:
      size_ = 0;
      line_bytes_ = 0;
      if (HexDigit(byte) < 0) return Refuse(400, kMalformed);
      state_ = State::kSize;
      break;
    default:
      break;
  }
  CountLineBytes(1);
  const int digit = state_ == State::kSize ? HexDigit(byte) : -1;
  digit >= 0 ? TakeDigit(digit) : TakeAfterSize(byte);
}

void ChunkDecoder::TakeDigit(int digit) {
  if (size_ > std::numeric_limits<uint64_t>::max() / 16) {
    return RefuseSize();
  }
  size_ = size_ * 16 + static_cast<uint64_t>(digit);
}

void ChunkDecoder::TakeAfterSize(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  if (byte == '\r' && state_ != State::kSpace) {
    state_ = State::kSizeLf;
  } else if (state_ == State::kExtension) {
    const bool is_control = (value < 0x20 && byte != '\t') || value == 0x7f;
    if (is_control) Refuse(400, kMalformed);
  } else if (byte == ';') {
    state_ = State::kExtension;
  } else if (byte == ' ' || byte == '\t') {
    state_ = State::kSpace;
  } else {
    Refuse(400, kMalformed);
  }
}

void ChunkDecoder::Expect(char expected, char byte, State next) {
  if (byte != expected) return Refuse(400, kMalformed);
  state_ = next;
}

void ChunkDecoder::EndLine() {
  if (refusal_.has_value()) return;
  if (size_ == 0) {
    state_ = State::kTrailers;
    line_bytes_ = 0;
  } else if (size_ > static_cast<uint64_t>(max_body_.value - body_bytes_)) {
    RefuseSize();
  } else {
    body_bytes_ += static_cast<int64_t>(size_);
  }
}

size_t ChunkDecoder::TakeTrailers(std::string_view bytes) {
  // One more than allowed, so that the limit is noticed where it is passed.
  const auto most = static_cast<size_t>(max_line_.value - line_bytes_ + 1);
  const size_t taken = trailers_.Scan(bytes.substr(0, most));
  CountLineBytes(static_cast<int64_t>(taken));
  if (trailers_.state() == LineScanner::State::kBad) {
    Refuse(400, "a trailer of the body is malformed");
  } else if (trailers_.state() == LineScanner::State::kEnd) {
    state_ = State::kDone;
  }
  return taken;
}

void ChunkDecoder::Refuse(int status, std::string_view message) {
  if (!refusal_.has_value()) refusal_ = Refusal{status, std::string(message)};
}

void ChunkDecoder::RefuseSize() {
  Refuse(413, Concat("the body ", MustHaveAtMost(max_body_, "bytes")));
}

void ChunkDecoder::CountLineBytes(int64_t count) {
  line_bytes_ += count;
  if (line_bytes_ > max_line_.value) {
    Refuse(431, Concat("a line before a chunk of the body, and its trailers, ",
                       MustHaveAtMost(max_line_, "bytes")));
  }
}

}  // namespace espalier::http
