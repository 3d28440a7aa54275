#include "http/serve_bytes.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>

#include "base/check.h"
#include "http/connection.h"
#include "http/socket.h"
#include "http/worker.h"

namespace espalier::http {

namespace {

// The client: both halves of its side of the pair.
class Client {
 public:
  explicit Client(int fd) : fd_(fd) {}
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Writes as much as the system takes at once. After the last byte, or if the
  // server takes no more, closes the half and returns false.
  bool Write(std::string_view* bytes, size_t piece) {
    const size_t most = piece == 0 ? bytes->size() : piece;
    const ssize_t sent = send(fd_, bytes->data(), std::min(most, bytes->size()),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) bytes->remove_prefix(static_cast<size_t>(sent));
    const bool is_refused = sent < 0 && errno != EAGAIN;
    if (!bytes->empty() && !is_refused) return true;
    shutdown(fd_, SHUT_WR);
    return false;
  }

  // Appends what there is; false when the server has closed.
  bool Read(std::string* answer) {
    std::array<char, 16 << 10> buffer;
    while (true) {
      const ssize_t count =
          recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (count <= 0) return count < 0 && errno == EAGAIN;
      answer->append(buffer.data(), static_cast<size_t>(count));
    }
  }

 private:
  const int fd_;
};

}  // namespace

std::string ServeBytes(std::string_view bytes, size_t piece,
                       const ServerOptions& options, const Handler& handler) {
  int fds[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  Client client(fds[1]);
  ServerShared shared{.limits = options.limits,
                      .error_response = options.error_response,
                      .head_check = options.head_check,
                      .streamed_body_limit = options.streamed_body_limit,
                      .answer_log = options.answer_log,
                      .others_wait = nullptr,
                      .handler = handler};
  Worker worker(&shared);
  // A Connection sees no other family than TCP's.
  worker.Add(Socket(worker.context(), boost::asio::ip::tcp::v4(), fds[0]));
  std::string answer;
  bool writes = true;
  do {
    if (writes) writes = client.Write(&bytes, piece);
    worker.context().poll();
  } while (client.Read(&answer));
  worker.Finish();
  worker.Run();
  return answer;
}

}  // namespace espalier::http
