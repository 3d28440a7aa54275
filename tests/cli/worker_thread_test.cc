#include "examples/cli/runtime/worker_thread.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <future>
#include <memory>
#include <new>
#include <thread>
#include <utility>

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

TEST(WorkerThreadTest, GoesOnWhereThereIsNoMemory) {
  WorkerThread thread;
  for (int i = 0; i < 3; ++i) {
    asio::post(thread.context(), [] { throw std::bad_alloc(); });
  }
  std::promise<std::thread::id> ran;
  asio::post(thread.context(),
             [&] { ran.set_value(std::this_thread::get_id()); });
  EXPECT_NE(ran.get_future().get(), std::this_thread::get_id());
}

// As asio does where it has no memory to go on with.
TEST(WorkerThreadTest, WhatIsDroppedIsDestroyed) {
  auto dropped = std::make_shared<int>();
  const std::weak_ptr<int> is_held = dropped;
  WorkerThread thread;
  asio::post(thread.context(), [held = std::exchange(dropped, nullptr)] {
    throw std::bad_alloc();
  });
  std::promise<void> ran;
  asio::post(thread.context(), [&] { ran.set_value(); });
  ran.get_future().get();
  EXPECT_TRUE(is_held.expired());
}

TEST(WorkerThreadTest, EndsWithWorkThatIsLeft) {
  std::promise<void> begun;
  std::promise<void> may_end;
  auto left = std::make_shared<int>();
  std::thread ends;
  {
    WorkerThread thread;
    asio::post(thread.context(), [&] {
      begun.set_value();
      may_end.get_future().get();
    });
    asio::post(thread.context(), [left] { ++*left; });
    begun.get_future().get();
    ends = std::thread([&] { may_end.set_value(); });
  }
  ends.join();
  EXPECT_LE(*left, 1);
  EXPECT_EQ(left.use_count(), 1);
}

}  // namespace
}  // namespace espalier::cli
