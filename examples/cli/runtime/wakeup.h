// Wakeup: lets a coroutine wait until something has changed, which it then
// looks at itself.
//
//   while (queue.empty()) co_await changed.Wait();  // one coroutine
//   queue.push(x); changed.Notify();                // any other
//
// A Notify() without a waiter ends the next Wait() at once, so that no change
// is missed.
// Thread safety: the context's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace espalier::cli {

class Wakeup {
 public:
  explicit Wakeup(boost::asio::io_context& context) : channel_(context, 1) {}

  void Notify() { channel_.try_send(boost::system::error_code()); }

  boost::asio::awaitable<void> Wait() {
    co_await channel_.async_receive(boost::asio::use_awaitable);
  }

 private:
  boost::asio::experimental::channel<void(boost::system::error_code)> channel_;
};

}  // namespace espalier::cli
