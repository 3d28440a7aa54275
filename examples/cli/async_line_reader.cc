#include "examples/cli/async_line_reader.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace espalier::cli {

namespace asio = boost::asio;

asio::awaitable<absl::StatusOr<std::vector<std::string>>>
AsyncLineReader::Read() {
  return asio::co_spawn(
      thread_,
      [this]() -> asio::awaitable<absl::StatusOr<std::vector<std::string>>> {
        co_return reader_.Read();
      },
      asio::use_awaitable);
}

}  // namespace espalier::cli
