#include "espalier/callback_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

TEST(CallbackThreadTest, CallsInOrderAndOnOneThread) {
  CallbackThread thread;
  std::vector<int> called;
  std::vector<std::thread::id> ids;
  for (int i = 0; i < 3; ++i) {
    thread.Post([&, i] {
      called.push_back(i);
      ids.push_back(std::this_thread::get_id());
    });
  }
  thread.Drain();
  EXPECT_THAT(called, ElementsAre(0, 1, 2));
  EXPECT_THAT(ids, ElementsAre(ids[0], ids[0], ids[0]));
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST(CallbackThreadTest, ItsEndCallsWhatWaits) {
  int num_called = 0;
  {
    CallbackThread thread;
    for (int i = 0; i < 100; ++i) thread.Post([&] { ++num_called; });
  }
  EXPECT_EQ(num_called, 100);
}

TEST(CallbackThreadTest, WhatThrowsEndsNothing) {
  CallbackThread thread;
  bool is_called = false;
  thread.Post([] { throw std::runtime_error("of a caller"); });
  thread.Post([&] { is_called = true; });
  thread.Drain();
  EXPECT_TRUE(is_called);
}

TEST(CallbackThreadTest, ItMayEndWithinACallback) {
  auto thread = std::make_unique<CallbackThread>();
  std::promise<void> ended;
  std::promise<void> called;
  CallbackThread* const posting = thread.get();
  posting->Post([&] {
    thread->Post([&] { called.set_value(); });
    thread->Drain();
    thread.reset();
    ended.set_value();
  });
  ended.get_future().wait();
  called.get_future().wait();  // what waited is called all the same
}

}  // namespace
}  // namespace espalier
