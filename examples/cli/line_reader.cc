#include "examples/cli/line_reader.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <iostream>
#include <utility>

#include "base/status.h"

namespace espalier::cli {
namespace {

// Lines handed over at once; more would only take memory.
constexpr size_t kMaxLines = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(
    const std::string& path) {
  std::unique_ptr<std::ifstream> file;
  if (path != "-") {
    file = std::make_unique<std::ifstream>(path);
    file->peek();  // a directory opens, and fails when read
    if (!file->is_open() || file->bad()) {
      return NotFound("cannot read ", path);
    }
    file->clear();
  }
  return std::unique_ptr<LineReader>(new LineReader(std::move(file)));
}

LineReader::LineReader(std::unique_ptr<std::ifstream> file)
    : file_(std::move(file)),
      input_(file_ != nullptr ? static_cast<std::istream&>(*file_) : std::cin) {
}

LineReader::~LineReader() { thread_.join(); }

std::vector<std::string> LineReader::ReadAvailable() {
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < kMaxLines && std::getline(input_, line)) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
    if (input_.rdbuf()->in_avail() <= 0) break;  // the next may take long
  }
  return lines;
}

boost::asio::awaitable<std::vector<std::string>> LineReader::Next() {
  return boost::asio::co_spawn(
      thread_,
      [this]() -> boost::asio::awaitable<std::vector<std::string>> {
        co_return ReadAvailable();
      },
      boost::asio::use_awaitable);
}

}  // namespace espalier::cli
