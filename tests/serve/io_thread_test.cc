// The work that one call causes on the thread of its connection, which others
// wait for, is bounded, whatever the call: measured as CPU time of the thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 20;
#else
constexpr int kSlowdown = 1;
#endif

// CPU time of the thread "http", of which there is one; zero if the system does
// not count it.
absl::Duration IoThreadTime() {
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(entry.path() / "comm") >> name;
    if (name != "http") continue;
    int64_t ns = 0;
    std::ifstream(entry.path() / "schedstat") >> ns;
    return absl::Nanoseconds(ns);
  }
  return absl::ZeroDuration();
}

// `count` times what `item` returns of its number, with commas between.
template <typename Item>
std::string List(int count, const Item& item) {
  std::string list = "[";
  for (int i = 0; i < count; ++i) list += Concat(i == 0 ? "" : ",", item(i));
  return list + "]";
}

std::string Ids(int count) {
  return List(count, [](int i) { return 5 + i * 7 % 4'000; });
}

std::string Words(int num_bytes) {
  std::string text;
  while (std::ssize(text) < num_bytes) text += "the station ";
  return text;
}

class IoThreadTest : public ServerFixture {
 protected:
  void SetUp() override {
    Listen();
    testing::ToyModelOptions model = TextModelWithPages();
    model.max_context = 1'024;
    model.page_size = 64;
    model.num_pages = 4'096;
    model.num_tokens_read = 2;
    ASSERT_OK(server_->Serve(MakeGenerator({.num_threads = 1}, model), "toy"));
    EXPECT_EQ(Get("/health").status, 200);
    if (IoThreadTime() == absl::ZeroDuration()) {
      GTEST_SKIP() << "this system does not count the CPU time of threads";
    }
  }

  // Answers of megabytes are sent by the thread, so their bytes count, too.
  void ExpectShort(std::string_view path, const std::string& body, int status) {
    const absl::Duration most = absl::Milliseconds(75) * kSlowdown;
    const absl::Duration most_for_a_megabyte =
        absl::Milliseconds(4) * kSlowdown;
    RawClient client = Connect();
    const absl::Duration before = IoThreadTime();
    client.Send(PostText(path, body, "Connection: close\r\n"));
    std::string answer = client.ReceiveBytes(size_t{1} << 40);
    const absl::Duration taken = IoThreadTime() - before;
    ASSERT_GT(answer.size(), 12u);
    EXPECT_EQ(answer.substr(9, 3), Concat(status)) << answer.substr(0, 1'000);
    const int64_t num_megabytes = (std::ssize(body) + std::ssize(answer)) >> 20;
    EXPECT_LT(taken, most + num_megabytes * most_for_a_megabyte)
        << path << " " << body.substr(0, 100) << " of " << body.size()
        << " bytes, answered by " << answer.size();
  }
};

TEST_F(IoThreadTest, PromptsTimesListsAreShort) {
  const std::string prompts = List(256, [](int) { return "\"It rains.\""; });
  const auto body = [&](std::string_view field) {
    return Concat(R"({"max_tokens": 1, "prompt": )", prompts, ", ", field, "}");
  };
  const std::string words = Concat(R"("bad_words": [")", Words(60'000), "\"]");
  const std::string few_words =
      Concat(R"("bad_words": [")", Words(10'000), "\"]");
  const std::string ids = Concat(
      R"("bad_words_ids": )",
      List(100'000, [](int i) { return Concat("[5,", 6 + i % 3'000, "]"); }));
  for (const std::string& field : {words, few_words, ids}) {
    ExpectShort("/v1/completions", body(field), 200);
  }
  ExpectShort("/v1/completions/render", body(few_words), 200);
  ExpectShort(
      "/v1/completions/render",
      Concat(R"({"max_tokens": 1, "prompt": [[4], [5], [6], [7]], )", ids, "}"),
      200);
}

TEST_F(IoThreadTest, LogProbabilitiesOfLongPromptsAreShort) {
  const std::string prompts = List(16, [](int) { return Ids(500); });
  const std::string texts =
      List(16, [](int) { return Concat("\"", Words(1'500), "\""); });
  for (const std::string_view fields :
       {R"("echo": true, "logprobs": 64)", R"("prompt_logprobs": 64)",
        R"("echo": true, "logprobs": 64, "stream": true)",
        R"("prompt_logprobs": 64, "stream": true)"}) {
    for (const std::string& prompt : {prompts, texts}) {
      ExpectShort(
          "/v1/completions",
          Concat(R"({"max_tokens": 1, "prompt": )", prompt, ", ", fields, "}"),
          200);
    }
  }
}

TEST_F(IoThreadTest, LongTextsAreShort) {
  const std::string texts =
      List(200, [](int) { return Concat("\"", Words(70'000), "\""); });
  ExpectShort("/v1/completions", Concat(R"({"prompt": )", texts, "}"), 400);
  ExpectShort(
      "/v1/completions",
      Concat(R"({"truncate_prompt_tokens": 9, "max_tokens": 1, "prompt": ")",
             Words(1'000'000), "\"}"),
      200);
  ExpectShort("/tokenize", Concat(R"({"prompt": ")", Words(1'000'000), "\"}"),
              200);
  ExpectShort("/detokenize", Concat(R"({"tokens": )", Ids(1'000'000), "}"),
              200);
}

TEST_F(IoThreadTest, ScoringsAreShort) {
  const std::string items =
      List(200'000, [](int i) { return Concat("[", 5 + i % 3'000, "]"); });
  ExpectShort("/generative_scoring",
              Concat(R"({"query": [4], "items": )", items, "}"), 200);
  const std::string texts = List(500, [](int) { return "\"a\""; });
  ExpectShort("/generative_scoring",
              Concat(R"({"query": ")", Words(10'000), R"(", "items": )", texts,
                     R"(, "label_token_ids": [5]})"),
              400);
  ExpectShort("/generative_scoring",
              Concat(R"({"query": [4], "unknown": )", Ids(1'000'000), "}"),
              400);
}

TEST_F(IoThreadTest, ManyIdsToAbortAreShort) {
  ExpectShort("/abort_requests",
              Concat(R"({"request_ids": )",
                     List(1'000'000, [](int) { return "\"a\""; }), "}"),
              200);
}

// Each of these short bodies is refused after a part of a second of work.
TEST_F(IoThreadTest, ConstraintsAreShort) {
  int num_calls = 0;
  const auto fields = [&] {
    return Concat(R"("max_tokens": 1, "constraint": {"regex": )",
                  R"("((a|b|cd){1,900}x){1,900}y{)", ++num_calls, "}\"}}");
  };
  for (const std::string_view path :
       {"/v1/completions", "/v1/completions/render"}) {
    ExpectShort(path, Concat(R"({"prompt": [4], )", fields()), 400);
  }
  ExpectShort(
      "/inference/v1/generate",
      Concat(R"({"token_ids": [4], "sampling_params": {)", fields(), "}"), 400);
  // 0.3 s; a greater number takes a sanitizer longer than clients wait.
  ExpectShort("/v1/completions",
              R"({"prompt": [4], "max_tokens": 1, "constraint":
                  {"json_schema": {"type": "array",
                                   "contains": {"const": 1},
                                   "minContains": 10000}}})",
              400);
}

TEST_F(IoThreadTest, OtherCallsDoNotWaitForConstraints) {
  constexpr int kClients = 8;
  std::vector<RawClient> clients;
  const absl::Duration before = IoThreadTime();
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(Connect());
    clients.back().Send(PostText(
        "/v1/completions",
        Concat(R"({"prompt": [4], "regex": "((a|b|cd){1,900}x){1,900}z{)",
               1 + i, "}\"}")));
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Get("/health").status, 200);
  for (RawClient& client : clients) EXPECT_EQ(client.Receive().status, 400);
  EXPECT_LT(IoThreadTime() - before, absl::Milliseconds(75) * kSlowdown);
}

TEST_F(IoThreadTest, ManyChoicesAreShort) {
  for (const std::string_view fields :
       {R"("n": 512, "logprobs": 20)",
        R"("n": 256, "logprobs": 20, "best_of": 512, "stream": true)",
        R"("num_beams": 256, "n": 256, "stream": true)"}) {
    ExpectShort("/v1/completions",
                Concat(R"({"prompt": [4], "max_tokens": 8, )",
                       R"("ignore_eos": true, )", fields, "}"),
                200);
  }
}

}  // namespace
}  // namespace espalier::serve
