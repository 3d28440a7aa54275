// Every response has a line in the log, and a log that is not read delays no
// request.
#include "serve/request_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/serve/server_fixture.h"

namespace espalier::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// A pipe whose reading end returns the written lines.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(fds_, O_CLOEXEC), 0); }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  int input() const { return fds_[1]; }
  void Close(int end) {
    if (fds_[end] >= 0) close(fds_[end]);
    fds_[end] = -1;
  }
  // Reads until there are `count` lines, or for ten seconds.
  std::vector<std::string> ReadLines(int count) {
    fcntl(fds_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    for (int i = 0; i < 2'000; ++i) {
      char buffer[4096];
      const ssize_t size = read(fds_[0], buffer, sizeof buffer);
      if (size > 0) {
        text.append(buffer, size);
      } else if (text.ends_with('\n') &&
                 std::ranges::count(text, '\n') >= count) {
        break;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    EXPECT_EQ(lines.back(), "");
    lines.pop_back();
    return lines;
  }

 private:
  int fds_[2] = {-1, -1};
};

TEST(RequestLogLineTest, StaysALineWhateverIsInIt) {
  const std::string path = "/a b\n\x80\\" + std::string(400, 'c');
  EXPECT_EQ(RequestLogLine({.client = "::1",
                            .method = "GET",
                            .path = path,
                            .note = "id=1",
                            .status = 404,
                            .num_bytes = 12,
                            .elapsed = absl::Milliseconds(1234),
                            .is_whole = true},
                           absl::UnixEpoch() + absl::Milliseconds(1)),
            "1970-01-01T00:00:00.001Z ::1 GET /a\\x20b\\x0a\\x80\\x5c" +
                std::string(249, 'c') + "... 404 1.234s 12B id=1\n");
  EXPECT_EQ(RequestLogLine({}, absl::UnixEpoch()),
            "1970-01-01T00:00:00.000Z - - - 0 0.000s 0B cut\n");
}

class RequestLogTest : public ServerFixture {
 protected:
  ServerOptions Logging() {
    ServerOptions options;
    options.request_log_fd = log_.input();
    return options;
  }
  ~RequestLogTest() override { server_.reset(); }

  Pipe log_;
};

TEST_F(RequestLogTest, EachAnswerHasALineInItsOrder) {
  ServerOptions options = Logging();
  options.api_keys = ApiKeys({"first-key", "second-key"});
  Start(options);
  const std::string key = "Authorization: Bearer second-key\r\n";
  const std::string id = "X-Request-Id: mine\r\n";
  RawClient client = Connect();
  for (const std::string& text :
       {PostText("/v1/completions", R"({"prompt": [4], "max_tokens": 2})",
                 key + id),
        PostText("/v1/completions",
                 R"({"prompt": [4], "max_tokens": 2, "stream": true})", key),
        PostText("/v1/completions",
                 R"({"prompt": [4], "max_tokens": 1, "request_id": "his"})",
                 key + id),
        GetText("/health?a=secret"), GetText("/v1/models"),
        std::string("GET /a\x01 HTTP/1.1\r\n\r\n")}) {
    client.Send(text);
    EXPECT_TRUE(client.Receive().is_whole);
  }
  const std::string begin = "[0-9T:.-]+Z 127\\.0\\.0\\.1 ";
  const std::string figures = " [0-9]\\.[0-9]{3}s [0-9]+B";
  const std::vector<std::string> lines = log_.ReadLines(6);
  EXPECT_THAT(
      lines,
      ElementsAre(
          MatchesRegex(begin + "POST /v1/completions 200" + figures +
                       " id=mine key=1"),
          MatchesRegex(begin + "POST /v1/completions 200" + figures +
                       " id=[0-9a-f]{24} key=1"),
          MatchesRegex(begin + "POST /v1/completions 200" + figures +
                       " id=his key=1"),
          MatchesRegex(begin + "GET /health 200" + figures + " id=.*"),
          MatchesRegex(begin + "GET /v1/models 401" + figures + " id=.*"),
          MatchesRegex(begin + "- - 400" + figures)));
}

TEST_F(RequestLogTest, SaysWhoseBodyWasRefusedUnread) {
  ServerOptions options = Logging();
  options.api_keys = ApiKeys({"a-key"});
  Start(options);
  RawClient client = Connect();
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\n"
      "Content-Length: 9\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 401);
  const std::vector<std::string> lines = log_.ReadLines(1);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0], HasSubstr("POST /v1/completions 401 "));
  EXPECT_TRUE(absl::EndsWith(lines[0], " id=mine"));
}

TEST_F(RequestLogTest, SaysWhoseAnswerWasCut) {
  Start(Logging());
  model_->Hold(true);
  RawClient client = Connect();
  client.Send(PostText("/v1/completions", R"({"prompt": [4]})"));
  model_->AwaitStep();
  client.Close();
  const std::vector<std::string> lines = log_.ReadLines(1);
  model_->Hold(false);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_THAT(lines[0], HasSubstr("POST /v1/completions 0 "));
  EXPECT_TRUE(absl::EndsWith(lines[0], " cut"));
}

TEST_F(RequestLogTest, HoldsUpNothingThoughNobodyReadsIt) {
  Start(Logging());
  fcntl(log_.input(), F_SETPIPE_SZ, 4096);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Get("/health").status, 200);
  server_.reset();
  EXPECT_GE(log_.ReadLines(1).size(), 1);  // a pipe of one page takes one
}

TEST_F(RequestLogTest, OutlivesItsReader) {
  Start(Logging());
  log_.Close(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Get("/health").status, 200);
}

// A file that takes nothing now may do so later, as a disk that is full.
TEST(RequestLogDropTest, GoesOnOnceTheFileTakesLinesAgain) {
  const http::AnswerRecord record = {.path = "/p", .is_whole = true};
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "there is no /dev/full";
  const int fd = fcntl(full, F_DUPFD_CLOEXEC, 0);
  Pipe pipe;
  {
    RequestLog log;
    ASSERT_OK(log.Start(fd));
    log.Add(record);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // From now on it is the pipe.
    ASSERT_EQ(dup2(pipe.input(), fd), fd);
    log.Add(record);
    const std::vector<std::string> lines = pipe.ReadLines(2);
    ASSERT_EQ(lines.size(), 2);
    EXPECT_THAT(lines[0], HasSubstr(" /p "));
    EXPECT_THAT(lines[1], HasSubstr("(1 requests were not logged"));
  }
  close(fd);
  close(full);
}

TEST(RequestLogDropTest, AFullPipeCutsNoLine) {
  Pipe pipe;
  fcntl(pipe.input(), F_SETPIPE_SZ, 4096);
  const std::string path(200, 'p');
  {
    RequestLog log;
    for (int i = 0; i < 100; ++i) log.Add({.path = path, .is_whole = true});
    ASSERT_OK(log.Start(pipe.input()));
  }
  const std::string line = RequestLogLine({.path = path, .is_whole = true}, {});
  EXPECT_EQ(pipe.ReadLines(1).size(), 4096 / line.size());
}

TEST(RequestLogDropTest, CountsWhatItDrops) {
  Pipe pipe;
  fcntl(pipe.input(), F_SETPIPE_SZ, 4096);
  const std::string path(200, 'p');
  const http::AnswerRecord record = {.path = path, .is_whole = true};
  constexpr int kMany = 40'000;  // more than kMaxWaitingBytes
  RequestLog log;
  ASSERT_OK(log.Start(pipe.input()));
  for (int i = 0; i < kMany; ++i) log.Add(record);
  int64_t num_lines = 0;
  int64_t num_dropped = 0;
  while (num_lines + num_dropped < kMany) {
    for (const std::string& line : pipe.ReadLines(1)) {
      int64_t dropped = 0;
      if (std::sscanf(line.c_str(), "(%ld requests were not", &dropped) == 1) {
        num_dropped += dropped;
      } else {
        ++num_lines;
      }
    }
    if (HasFailure()) break;
  }
  EXPECT_EQ(num_lines + num_dropped, kMany);
  EXPECT_GT(num_dropped, 0);
}

}  // namespace
}  // namespace espalier::serve
