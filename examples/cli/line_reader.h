// LineReader: the lines of a file or of stdin, read on a thread of their own,
// so that a slow pipe never holds up requests that already run.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <fstream>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::cli {

class LineReader {
 public:
  // `path` "-" is stdin.
  // Errors: kNotFound if the file cannot be read.
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(
      const std::string& path);
  ~LineReader();

  // The lines that are there, without their line ends: at least one, for which
  // it waits, or none at the end. One caller at a time.
  boost::asio::awaitable<std::vector<std::string>> Next();

 private:
  explicit LineReader(std::unique_ptr<std::ifstream> file);
  std::vector<std::string> ReadAvailable();

  std::unique_ptr<std::ifstream> file_;  // null for stdin
  std::istream& input_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace espalier::cli
