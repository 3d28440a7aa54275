#include "serve/request_log.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/memory.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

// So many bytes a pipe takes whole, or says that it has no room (PIPE_BUF).
constexpr size_t kBytesAtOnce = 4096;
constexpr absl::Duration kLastWait = absl::Seconds(1);

std::string Printable(std::string_view text) {
  constexpr size_t kMost = 256;
  if (text.empty()) return "-";
  std::string printable;
  for (const char c : text.substr(0, kMost)) {
    if (c > ' ' && c <= '~' && c != '\\') {
      printable += c;
    } else {
      absl::StrAppendFormat(&printable, "\\x%02x",
                            static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMost) printable += "...";
  return printable;
}

// The bytes of the next write: whole lines as far as they fit, since what is
// dropped after half a line would leave the next one behind that half.
std::string_view NextWrite(std::string_view lines) {
  const std::string_view most = lines.substr(0, kBytesAtOnce);
  const size_t end = most.rfind('\n');
  return end == most.npos ? most : most.substr(0, end + 1);
}

// A write of this thread to a pipe without a reader fails, and ends nothing.
void BlockSigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

std::string RequestLogLine(const http::AnswerRecord& record, absl::Time time) {
  const std::string note(record.note);
  return absl::StrFormat(
      "%s %s %s %s %d %.3fs %dB%s%s%s\n",
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone()),
      Printable(record.client), Printable(record.method),
      Printable(record.path), record.status,
      absl::ToDoubleSeconds(record.elapsed), record.num_bytes,
      note.empty() ? "" : " ", note, record.is_whole ? "" : " cut");
}

absl::Status RequestLog::Start(int fd) {
  fd_ = fd;
  try {
    thread_ = std::thread([this] {
      BlockSigpipe();
      WriteAll();
    });
  } catch (const std::system_error& error) {
    return MakeError(absl::StatusCode::kUnavailable,
                     "cannot start a thread to log requests: ", error.what());
  }
  return absl::OkStatus();
}

RequestLog::~RequestLog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ended_ = true;
    end_ = absl::Now() + kLastWait;
  }
  has_lines_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RequestLog::Add(const http::AnswerRecord& record) noexcept {
  try {
    const std::string line = RequestLogLine(record, absl::Now());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.size() + line.size() > kMaxWaitingBytes) {
      ++num_dropped_;
      return;
    }
    waiting_ += line;
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_dropped_;
  }
  has_lines_.notify_one();
}

void RequestLog::WriteAll() {
  while (true) {
    std::string lines;
    int64_t num_dropped = 0;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      has_lines_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_ended_ || !waiting_.empty();
      });
      if (waiting_.empty()) return;
      lines.swap(waiting_);
      num_dropped = std::exchange(num_dropped_, 0);
    }
    num_dropped += std::ranges::count(Write(lines), '\n');
    if (num_dropped == 0) continue;
    const std::string note = UntilThereIsMemory([&] {
      return Concat("(", num_dropped,
                    " requests were not logged: the log was full, or read too "
                    "slowly)\n");
    });
    if (Write(note).empty()) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    num_dropped_ += num_dropped;
  }
}

std::string_view RequestLog::Write(std::string_view lines) {
  while (!lines.empty()) {
    if (!WaitForRoom()) return lines;
    const std::string_view next = NextWrite(lines);
    const ssize_t count = write(fd_, next.data(), next.size());
    if (count > 0) {
      lines.remove_prefix(static_cast<size_t>(count));
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      return lines;
    }
  }
  return lines;
}

bool RequestLog::WaitForRoom() {
  constexpr int kMilliseconds = 100;
  while (true) {
    pollfd wanted = {.fd = fd_, .events = POLLOUT, .revents = 0};
    const int count = poll(&wanted, 1, kMilliseconds);
    if (count > 0) return (wanted.revents & POLLOUT) != 0;
    if (count < 0 && errno != EINTR) return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (absl::Now() > end_) return false;
  }
}

}  // namespace espalier::serve
