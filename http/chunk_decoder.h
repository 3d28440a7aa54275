// ChunkDecoder: decodes the body of a request that is sent in chunks (RFC 9112,
// section 7.1), as bytes arrive in pieces of any size. Extensions and trailers
// are dropped.
//
//   ChunkDecoder decoder(max_line, max_body);
//   const size_t taken = decoder.Decode(received, &body);
//   if (decoder.refusal()) ...  // answer with it, and close
//   if (decoder.is_done()) ...  // what is behind `taken` is the next request
//
// Each byte is looked at once, and those of a chunk are appended as one piece.
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/header_parser.h"
#include "http/limits.h"
#include "http/line_scanner.h"

namespace espalier::http {

class ChunkDecoder {
 public:
  // Limits of bytes. A line before a chunk, and the trailers, have at most
  // max_line.
  ChunkDecoder(const NamedLimit& max_line, const NamedLimit& max_body)
      : max_line_(max_line), max_body_(max_body) {}

  // Appends what `bytes` have of the body to *body, and returns how many bytes
  // it has read: all of them, unless it is done or has refused.
  size_t Decode(std::string_view bytes, std::string* body);

  bool is_done() const { return state_ == State::kDone; }
  // Set once the bytes are no chunked body, or more than the limits allow.
  const std::optional<Refusal>& refusal() const { return refusal_; }

 private:
  enum class State {
    kFirstDigit,
    kSize,       // after a digit
    kSpace,      // between the size and its extension
    kExtension,  // after ';'
    kSizeLf,     // after the CR of the line
    kData,
    kDataCr,
    kDataLf,
    kTrailers,
    kDone,
  };

  void TakeOfLine(char byte);
  void TakeDigit(int digit);
  void TakeAfterSize(char byte);
  // The byte, if it is the one expected, leads to `next`.
  void Expect(char expected, char byte, State next);
  void EndLine();
  size_t TakeTrailers(std::string_view bytes);
  void Refuse(int status, std::string_view message);
  void RefuseSize();
  void CountLineBytes(int64_t count);

  const NamedLimit max_line_;
  const NamedLimit max_body_;
  State state_ = State::kFirstDigit;
  int64_t line_bytes_ = 0;  // in the current line, or in the trailers
  uint64_t size_ = 0;       // chunk size; in kData the rest of it
  int64_t body_bytes_ = 0;  // in all chunks so far
  LineScanner trailers_{/*follows_line=*/true};
  std::optional<Refusal> refusal_;
};

}  // namespace espalier::http
