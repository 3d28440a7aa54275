// AsyncLineReader: a LineReader that waits on a thread of its own, so that a
// slow pipe never holds up requests that already run.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/cli/input/line_reader.h"

namespace espalier::cli {

class AsyncLineReader {
 public:
  // `reader` outlives this.
  explicit AsyncLineReader(LineReader* reader) : reader_(*reader) {}
  // Waits for a read that is under way.
  ~AsyncLineReader() { thread_.join(); }
  AsyncLineReader(const AsyncLineReader&) = delete;
  AsyncLineReader& operator=(const AsyncLineReader&) = delete;

  // LineReader::Read. One caller at a time.
  boost::asio::awaitable<absl::StatusOr<std::vector<std::string>>> Read();

  // LineReader::Stop.
  void Stop() { reader_.Stop(); }

 private:
  LineReader& reader_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace espalier::cli
