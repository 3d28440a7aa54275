#include "examples/cli/input/async_line_reader.h"

#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <new>
#include <utility>

#include "base/memory.h"
#include "base/status.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

using Lines = absl::StatusOr<std::vector<std::string>>;

// One read, shared by the waiting coroutine and the reading thread.
struct LinesRead {
  explicit LinesRead(const asio::any_io_executor& executor)
      : is_done(executor, 1) {}

  Lines lines;
  asio::experimental::channel<void(boost::system::error_code)> is_done;
};

Lines ReadFrom(LineReader& reader) {
  try {
    return reader.Read();
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory(
        [] { return ResourceExhausted("not enough memory for a line"); });
  }
}

}  // namespace

asio::awaitable<Lines> AsyncLineReader::Read() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto read = std::make_shared<LinesRead>(executor);
  asio::post(thread_, [this, read, executor] {
    read->lines = ReadFrom(reader_);
    UntilThereIsMemory([&] {
      asio::post(executor, [read] {
        read->is_done.try_send(boost::system::error_code());
      });
    });
  });
  co_await read->is_done.async_receive(asio::use_awaitable);
  co_return std::move(read->lines);
}

}  // namespace espalier::cli
