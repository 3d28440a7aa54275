// RequestLog: a line for each answer of a server, as it ends:
//
//   2026-11-24T13:14:15.123Z 127.0.0.1 POST /v1/completions 200 0.084s 512B
//   id=63d0e8801a9d661926a3dcd8 key=0                      (on the same line)
//
// The fields are the end of the answer (UTC), the client, the method and the
// path without the query, the status, the time since the request arrived, and
// the bytes sent; then the request id, as in the header x-request-id, and the
// index of the client's API key, if there are keys. "cut" at the end means that
// the client did not get the whole answer; status 0, that it left before there
// was one; "-" replaces unreadable values. Spaces and bytes that are not
// printable ASCII are written as \xHH, and values of more than 256 bytes are
// cut and end in "...": a request cannot add a line.
//
// A separate thread writes, so that a slow reader of the log, or a stopped
// terminal, delays no answer. Lines beyond kMaxWaitingBytes are dropped, and so
// are lines that the file refuses, as a pipe without a reader and a full disk
// do; their number is logged once writes succeed again. SIGPIPE is blocked on
// that thread.
//
// Thread safety: any thread may Add.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "http/answer_record.h"

namespace espalier::serve {

// The line of an answer that ended at `time`, with its line end.
std::string RequestLogLine(const http::AnswerRecord& record, absl::Time time);

class RequestLog {
 public:
  static constexpr size_t kMaxWaitingBytes = size_t{4} << 20;

  RequestLog() = default;
  // Writes what waits, as far as the file takes it within a second.
  ~RequestLog();
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  // Begins to write to the file descriptor `fd`, which stays the caller's.
  // Errors: kUnavailable if there is no thread to be had.
  absl::Status Start(int fd);
  // Never throws: a line that there is no memory for is dropped.
  void Add(const http::AnswerRecord& record) noexcept;

 private:
  void WriteAll();
  // Returns what the file does not take, from the first line that it lacks the
  // end of.
  std::string_view Write(std::string_view lines);
  // Waits until the file takes some bytes; false if it does not now.
  bool WaitForRoom();

  int fd_ = -1;
  std::mutex mutex_;
  std::condition_variable has_lines_;
  std::string waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace espalier::serve
