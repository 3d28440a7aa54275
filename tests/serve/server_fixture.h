// A server of a toy model with steps that a test can hold, and a client of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "serve/server.h"
#include "tests/espalier/generator_fixture.h"
#include "tests/http/raw_client.h"
#include "tests/status_matchers.h"

namespace espalier::serve {

using http::RawClient;
using http::RawResponse;

// POST with a body of JSON; `headers` each with its line end.
inline std::string PostText(std::string_view path, std::string_view body,
                            std::string_view headers = "") {
  return Concat("POST ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                "Content-Type: application/json\r\nContent-Length: ",
                body.size(), "\r\n", headers, "\r\n", body);
}

inline std::string GetText(std::string_view path,
                           std::string_view headers = "") {
  return Concat("GET ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\n", headers,
                "\r\n");
}

// Events of a response, without [DONE], each as JSON.
struct Events {
  json::array all;
  bool is_done = false;  // [DONE] came last
};
inline Events ReadEvents(const std::string& body) {
  Events events;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    if (end == body.npos) {
      ADD_FAILURE() << "an event without an end: " << body.substr(begin);
      break;
    }
    const std::string event = body.substr(begin, end - begin);
    begin = end + 2;
    if (event.starts_with(':')) continue;
    EXPECT_FALSE(events.is_done) << event;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    if (event == "data: [DONE]") {
      events.is_done = true;
    } else {
      events.all.push_back(ParseJson(event.substr(6)).value());
    }
  }
  return events;
}

class ServerFixture : public ::testing::Test {
 protected:
  // A generator with text, of a model that can be held.
  Generator MakeGenerator(
      GeneratorOptions options = {.num_threads = 1},
      testing::ToyModelOptions model = TextModelWithPages()) {
    model_ = std::make_shared<testing::HeldModel>(model);
    return Generator::Create(
               model_,
               std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(),
                                                &testing::EnFrTokenizer()),
               options)
        .value();
  }

  static testing::ToyModelOptions TextModelWithPages() {
    testing::ToyModelOptions model = testing::TextModel();
    model.memory = testing::ToyModelOptions::Memory::kPages;
    model.has_shareable_pages = true;
    return model;
  }

  void Listen(ServerOptions options = {}) {
    options.port = 0;
    options.num_threads = 1;
    options.model_name = "toy";
    auto server = Server::Listen(options);
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  void Start(ServerOptions options = {},
             GeneratorOptions generator = {.num_threads = 1}) {
    Listen(std::move(options));
    ASSERT_OK(server_->Serve(MakeGenerator(generator), "models/toy"));
  }

  RawClient Connect() { return RawClient(server_->port()); }

  // One call, on a connection of its own.
  RawResponse Send(const std::string& text) {
    RawClient client = Connect();
    client.Send(text);
    return client.Receive();
  }
  RawResponse Get(std::string_view path, std::string_view headers = "") {
    return Send(GetText(path, headers));
  }
  RawResponse Post(std::string_view path, std::string_view body,
                   std::string_view headers = "") {
    return Send(PostText(path, body, headers));
  }

  // The sample of /metrics, without labels.
  double Metric(const std::string& name) {
    const std::string text = Get("/metrics").body;
    const size_t at = text.find("\n" + name + "{");
    if (at == text.npos) return -1;
    return std::stod(text.substr(text.find("} ", at) + 2));
  }
  // Waits until it is that; false after ten seconds.
  bool AwaitMetric(const std::string& name, double value) {
    for (int i = 0; i < 2'000; ++i) {
      if (Metric(name) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::shared_ptr<testing::HeldModel> model_;
  std::unique_ptr<Server> server_;
};

}  // namespace espalier::serve
