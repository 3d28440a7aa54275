// ResponseScanner: where a response ends, and how many events it has, as its
// bytes arrive. It trusts the server, and keeps no body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::http_load {

class ResponseScanner {
 public:
  enum class State { kHead, kBody, kDone, kMalformed };

  // Returns how many bytes it has taken: all, unless the response is done.
  size_t Scan(std::string_view bytes);
  // The server has closed: the end of a response without a length.
  void End();
  // Before the next response.
  void Reset();

  State state() const { return state_; }
  int status() const { return status_; }
  bool closes() const { return closes_; }
  // Since Reset: blocks that end in an empty line.
  int64_t events() const { return events_; }

 private:
  enum class Framing { kLength, kChunked, kUntilClose };

  size_t ScanHead(std::string_view bytes);
  void ReadHead(std::string_view head);
  size_t ScanBody(std::string_view bytes);
  size_t ScanLine(std::string_view bytes);
  void CountEvents(std::string_view data);

  State state_ = State::kHead;
  Framing framing_ = Framing::kUntilClose;
  std::string text_;  // partial head or chunk line
  int64_t left_ = 0;  // rest of the body, or of the chunk and its line end
  bool in_chunk_ = false;
  bool is_last_chunk_ = false;
  bool after_line_end_ = false;
  bool closes_ = false;
  int status_ = 0;
  int64_t events_ = 0;
};

}  // namespace espalier::http_load
