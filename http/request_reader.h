// RequestReader: one request out of bytes as they arrive, in pieces of any
// size; how they are cut never changes what is read of them. No input or
// output: a connection feeds it, and so may a fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/chunk_decoder.h"
#include "http/header_parser.h"
#include "http/limits.h"
#include "http/line_scanner.h"

namespace espalier::http {

class RequestReader {
 public:
  enum class State { kEmpty, kHead, kBody, kDone, kRefused };

  // Both outlive it. `streamed_limit` is null if no body is streamed.
  explicit RequestReader(const Limits* limits,
                         const StreamedBodyLimit* streamed_limit = nullptr);

  // Returns how many of `bytes` belong to this request: all, unless it is done
  // or refused. Line ends before a request are skipped (RFC 9112, section 2.2);
  // while nothing else has come the state is kEmpty.
  // Throws std::bad_alloc.
  // REQUIRES: the state is neither kDone nor kRefused.
  size_t Read(std::string_view bytes);

  State state() const { return state_; }
  // REQUIRES: the state is kRefused.
  const Refusal& refusal() const { return *refusal_; }

  // Empty before the state is kBody. Its request has the body so far, unless it
  // is taken out.
  RequestHead& head() { return head_; }
  // The rest of the body is for a handler that runs meanwhile.
  bool is_streamed() const { return is_streamed_; }
  int64_t num_body_bytes() const { return num_body_bytes_; }

  // Ends the reading.
  void Refuse(Refusal refusal);

 private:
  size_t SkipLineEnds(std::string_view bytes);
  size_t ReadHead(std::string_view bytes);
  void BeginBody(std::string_view head_text);
  size_t ReadBody(std::string_view bytes);

  const Limits* const limits_;
  const StreamedBodyLimit* const streamed_limit_;
  State state_ = State::kEmpty;
  bool skips_lf_ = false;  // kEmpty: after a CR
  LineScanner scanner_{/*follows_line=*/false};
  std::string head_text_;  // where the head came in several pieces
  RequestHead head_;
  bool is_streamed_ = false;
  uint64_t content_length_ = 0;
  int64_t num_body_bytes_ = 0;
  std::optional<ChunkDecoder> chunks_;
  std::optional<Refusal> refusal_;
};

}  // namespace espalier::http
