// A client that sends bytes as they are, well formed or not, over TCP.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace espalier::http {

struct RawResponse {
  int status = 0;
  std::vector<Header> headers;
  std::string body;                 // chunks joined
  std::vector<std::string> chunks;  // chunked bodies only
  bool is_whole = false;            // up to where its framing says it ends

  std::string_view Find(std::string_view name) const {
    return FindHeader(headers, name);
  }
};

// Reads one response off the front of *bytes, as far as it is there; none if
// its head is not whole. `to_head`: it answers a HEAD, and has no body.
std::optional<RawResponse> TakeResponse(std::string* bytes,
                                        bool to_head = false);

// All in `bytes`, which must hold nothing else.
std::vector<RawResponse> TakeResponses(std::string bytes);

class RawClient {
 public:
  // Connects to 127.0.0.1. `receive_buffer`: bytes that the system may hold
  // for it, 0 for its default.
  explicit RawClient(int port, int receive_buffer = 0);
  ~RawClient() { Close(); }
  RawClient(RawClient&& other) noexcept;
  RawClient& operator=(RawClient&&) = delete;

  // False if the server has closed.
  bool Send(std::string_view bytes);
  // Closes the sending half.
  void FinishSending();
  void Close();
  void Reset();  // closes by a reset

  // One whole response. What was received after it is kept. One that is not
  // whole if the server closes before, or ten seconds pass.
  RawResponse Receive(bool to_head = false);
  // Returns the next `count` bytes, or fewer if the server closes.
  std::string ReceiveBytes(size_t count);
  // All until the server closes; nothing if it does not within ten seconds.
  std::optional<std::string> ReceiveAll();
  // True if the server closes within ten seconds, whatever it sends before.
  bool WaitForEnd() { return ReceiveAll().has_value(); }

  int fd() const { return fd_; }

 private:
  bool ReceiveSome();  // false at the end, and after ten seconds

  int fd_ = -1;
  bool timed_out_ = false;
  std::string received_;
};

}  // namespace espalier::http
