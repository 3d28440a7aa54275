// A server that runs out of memory ends the affected request and no other: it
// continues to accept connections, its time-outs come, no client gets another's
// response, and none waits for ever. Allocations of its threads fail once, in
// turn.
//
// A program of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "http/server.h"
#include "tests/few_cases.h"
#include "tests/http/raw_client.h"
#include "tests/http/test_server.h"
#include "tests/replace_operator_new.h"

namespace {

// Allocations of the server's threads until one fails; negative: none does.
std::atomic<int64_t> num_allocations_left = -1;
thread_local bool is_client = false;

}  // namespace

void espalier::testing::OnAllocation() {
  if (is_client || num_allocations_left < 0) return;
  if (num_allocations_left-- == 0) throw std::bad_alloc();
}

namespace espalier::http {

namespace asio = boost::asio;

namespace {

// Larger than the system's socket buffers.
constexpr size_t kLarge = 256 << 10;

std::string Large(char letter) { return std::string(kLarge, letter); }

// A failed allocation ends the events if `minds`; otherwise the next event
// follows.
asio::awaitable<void> SendLargeEvents(Exchange& exchange, bool minds) {
  const std::string event = Large('e');
  co_await exchange.BeginEvents();
  for (int i = 0; i < 3; ++i) {
    try {
      if (!co_await exchange.SendEvents(event)) co_return;
    } catch (const std::bad_alloc&) {
      if (minds) throw;
    }
  }
}

// Answers with the path, and much more if it begins with /large; /events are
// events of many bytes. /later comes after a while. It and /any_events do not
// mind a failure.
asio::awaitable<void> Answer(Exchange& exchange) {
  const std::string path = exchange.request().path;
  if (path.ends_with("events")) {
    co_await SendLargeEvents(exchange, path == "/events");
    co_return;
  }
  if (path == "/later") {
    asio::steady_timer timer(exchange.executor(), std::chrono::milliseconds(1));
    co_await timer.async_wait(asio::use_awaitable);
  }
  Response response;
  response.body = path;
  if (path.starts_with("/large")) response.body += Large('x');
  try {
    co_await exchange.Respond(std::move(response));
  } catch (const std::bad_alloc&) {
    if (path != "/later") throw;
  }
}

std::string BodyOf(const std::string& path) {
  if (path == "/events") return Large('e') + Large('e') + Large('e');
  return path.starts_with("/large") ? path + Large('x') : path;
}

class HttpOutOfMemoryTest : public ::testing::TestWithParam<int> {
 protected:
  HttpOutOfMemoryTest() {
    is_client = true;
    options_.num_threads = GetParam();
    options_.limits.max_unsent_bytes = 16 << 10;
  }
  ~HttpOutOfMemoryTest() override { num_allocations_left = -1; }

  // Runs `use` with a new server whose allocation `count` fails, for every
  // count up to the last allocation.
  template <typename Use>
  void TryAll(const Use& use) {
    int num_good = 0;
    int64_t count = 0;
    for (; num_good < 3 && !HasFailure(); count += testing::Cases(1, 2)) {
      const auto server = StartServer(Answer, options_);
      num_allocations_left = count;
      use(*server);
      num_good += num_allocations_left >= 0;
      num_allocations_left = -1;
      ExpectWorks(*server);
      if (HasFailure()) ADD_FAILURE() << "after allocation " << count;
    }
    EXPECT_GT(count, 10);
  }

  // Asks for all of `paths`, in one go or one by one, on one connection that
  // the last answer ends. Each answer is the right one, or an error; where the
  // server has closed before, the last one may be cut off, or missing.
  static void Ask(const Server& server, const std::vector<std::string>& paths) {
    RawClient client(server.port(), /*receive_buffer=*/4096);
    std::string requests;
    for (const std::string& path : paths) {
      requests +=
          Get(path, &path == &paths.back() ? "Connection: close\r\n" : "");
    }
    client.Send(requests);
    for (const std::string& path : paths) {
      const RawResponse response = client.Receive();
      if (!response.is_whole) break;
      if (response.status == 500) continue;
      EXPECT_EQ(response.status, 200);
      if (path == "/any_events") {
        EXPECT_EQ(response.body.size() % kLarge, 0);
      } else {
        EXPECT_TRUE(response.body == BodyOf(path)) << path;
      }
    }
    EXPECT_TRUE(client.WaitForEnd()) << "the client waits for ever";
  }

  static void ExpectWorks(Server& server) {
    EXPECT_TRUE(Eventually([&] {
      const ServerStats stats = server.stats();
      return stats.open_connections == 0 && stats.running_exchanges == 0;
    })) << "something is held";
    // One for each thread.
    for (int i = 0; i < GetParam() && !HasFailure(); ++i) {
      RawClient client(server.port());
      client.Send(Get("/after"));
      EXPECT_EQ(client.Receive().body, "/after") << "it does not accept";
    }
  }

  ServerOptions options_;
};

TEST_P(HttpOutOfMemoryTest, Answers) {
  TryAll([](const Server& server) { Ask(server, {"/1", "/2", "/3"}); });
}

TEST_P(HttpOutOfMemoryTest, LateAnswers) {
  TryAll([](const Server& server) { Ask(server, {"/later", "/later"}); });
}

TEST_P(HttpOutOfMemoryTest, LargeAnswers) {
  TryAll([](const Server& server) { Ask(server, {"/large1", "/large2"}); });
}

TEST_P(HttpOutOfMemoryTest, Events) {
  TryAll([](const Server& server) { Ask(server, {"/events", "/after"}); });
}

TEST_P(HttpOutOfMemoryTest, EventsOfAHandlerThatGoesOn) {
  TryAll([](const Server& server) { Ask(server, {"/any_events", "/after"}); });
}

TEST_P(HttpOutOfMemoryTest, Connections) {
  TryAll([](const Server& server) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<RawClient>(server.port()));
      clients.back()->Send(Get("/all", "Connection: close\r\n"));
    }
    for (const auto& client : clients) {
      EXPECT_TRUE(client->WaitForEnd()) << "the client waits for ever";
    }
  });
}

TEST_P(HttpOutOfMemoryTest, TimeOuts) {
  options_.limits.idle_timeout = absl::Milliseconds(10);
  options_.limits.header_timeout = absl::Milliseconds(10);
  options_.limits.linger_timeout = absl::Milliseconds(10);
  TryAll([](const Server& server) {
    RawClient idle(server.port());
    RawClient slow(server.port());
    slow.Send("GET ");
    EXPECT_TRUE(idle.WaitForEnd()) << "it is never late";
    EXPECT_TRUE(slow.WaitForEnd()) << "it is never late";
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, HttpOutOfMemoryTest, ::testing::Values(1, 2));

}  // namespace

}  // namespace espalier::http
