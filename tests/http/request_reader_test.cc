#include "http/request_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/http/request_texts.h"
#include "tests/http/test_server.h"

namespace espalier::http {

namespace {

using State = RequestReader::State;

// Observable state of a reader after some bytes.
struct Reading {
  State state;
  int status = 0;  // refused requests only
  std::string message;
  size_t taken = 0;
  std::string request;

  bool operator==(const Reading&) const = default;
};

void PrintTo(const Reading& reading, std::ostream* out) {
  *out << static_cast<int>(reading.state) << " " << reading.status << " "
       << reading.message << " after " << reading.taken << "\n"
       << reading.request;
}

std::string Describe(const RequestHead& head) {
  const Request& request = head.request;
  std::string text = Concat(request.method, "|", request.path, "|",
                            request.query, "|", head.is_http_1_0, "|",
                            head.keep_alive, "|", head.expects_continue, "\n");
  for (const auto& [name, value] : request.headers) {
    text += Concat(name, "|", value, "\n");
  }
  return text + request.body;
}

// Reads the pieces until the reader is done, refuses or has read all.
Reading ReadPieces(const std::vector<std::string_view>& pieces,
                   const Limits& limits) {
  RequestReader reader(&limits);
  Reading reading;
  for (const std::string_view piece : pieces) {
    const size_t taken = reader.Read(piece);
    reading.taken += taken;
    EXPECT_LE(taken, piece.size());
    if (reader.state() >= State::kDone) break;
    EXPECT_EQ(taken, piece.size());
  }
  reading.state = reader.state();
  if (reading.state == State::kRefused) {
    reading.status = reader.refusal().status;
    reading.message = reader.refusal().message;
    reading.taken = 0;  // unspecified after a refusal
  } else if (reading.state >= State::kBody) {
    reading.request = Describe(reader.head());
  }
  return reading;
}

Reading Read(std::string_view bytes, const Limits& limits = {}) {
  return ReadPieces({bytes}, limits);
}

int StatusOf(std::string_view bytes, const Limits& limits = {}) {
  return Read(bytes, limits).status;
}

TEST(RequestReaderTest, HowBytesAreCutChangesNothing) {
  Limits limits;
  limits.max_header_bytes = 200;
  limits.max_body_bytes = 100;
  for (const RequestText& text : RequestTexts()) {
    const std::string_view bytes = text.bytes;
    const Reading whole = Read(bytes, limits);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto pieces = {bytes.substr(0, cut), bytes.substr(cut)};
      ASSERT_EQ(ReadPieces(pieces, limits), whole) << bytes << "\nat " << cut;
    }
    std::vector<std::string_view> pieces;
    for (size_t i = 0; i < bytes.size(); ++i) {
      pieces.push_back(bytes.substr(i, 1));
    }
    ASSERT_EQ(ReadPieces(pieces, limits), whole) << bytes;
  }
}

TEST(RequestReaderTest, RefusesWhatIsNoRequest) {
  for (const RequestText& text : RequestTexts()) {
    const Reading reading = Read(text.bytes);
    EXPECT_EQ(reading.status, text.status) << text.bytes << reading.message;
    if (text.status == 0) {
      EXPECT_EQ(reading.state, State::kDone) << text.bytes;
    }
  }
}

TEST(RequestReaderTest, ALimitThatIsPassedIsTold) {
  Limits limits;
  limits.max_header_bytes = 60;
  limits.max_body_bytes = 10;
  const auto message = [&](std::string_view bytes) {
    return Read(bytes, limits).message;
  };
  EXPECT_EQ(message("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n"
                    "\r\n"),
            "the body must have at most 10 bytes, got 11");
  EXPECT_EQ(message("POST / HTTP/1.1\r\nHost: a\r\n"
                    "Transfer-Encoding: chunked\r\n\r\nb\r\n"),
            "the body must have at most 10 bytes, got more");
  limits.max_headers = 1;
  EXPECT_EQ(message("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"),
            "the request must have at most 1 headers, got more");
  EXPECT_EQ(message("GET /" + std::string(60, 'a') + " HTTP/1.1\r\n"),
            "the request line and headers must have at most 60 bytes, got "
            "more");
  limits.names = {.max_header_bytes = "--header-bytes",
                  .max_headers = "--headers",
                  .max_body_bytes = "--body-bytes"};
  EXPECT_EQ(message("GET /" + std::string(60, 'a') + " HTTP/1.1\r\n"),
            "the request line and headers must have at most 60 bytes "
            "(--header-bytes), got more");
  EXPECT_EQ(message("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"),
            "the request must have at most 1 headers (--headers), got more");
  limits.max_headers = 2;
  EXPECT_EQ(message("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n"
                    "\r\n"),
            "the body must have at most 10 bytes (--body-bytes), got 11");
  const std::string chunked =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  limits.max_header_bytes = 80;
  EXPECT_EQ(message(chunked + "b\r\n"),
            "the body must have at most 10 bytes (--body-bytes), got more");
  EXPECT_EQ(message(chunked + "1;" + std::string(80, 'a')),
            "a line before a chunk of the body, and its trailers, must have "
            "at most 80 bytes (--header-bytes), got more");
}

TEST(RequestReaderTest, WhatIsWrongWithALengthIsTold) {
  const auto message = [](std::string_view headers) {
    return Read(Concat("POST / HTTP/1.1\r\nHost: a\r\n", headers, "\r\n\r\n"))
        .message;
  };
  for (const char* const value :
       {"", "4a", "-4", "+4", "4, 4", "1.5", "0x4", "18446744073709551616"}) {
    EXPECT_EQ(message(Concat("Content-Length: ", value)),
              "Content-Length must be the number of the body's bytes, in "
              "[0, 2^64)")
        << value;
  }
  for (const char* const second : {"4", "5"}) {
    EXPECT_EQ(message(Concat("Content-Length: 4\r\nContent-Length: ", second)),
              "Content-Length must be given once");
  }
  for (const char* const both :
       {"Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: identity\r\nContent-Length: 4"}) {
    EXPECT_EQ(message(both),
              "Content-Length and Transfer-Encoding exclude each other");
  }
  for (const char* const coding :
       {"gzip", "gzip, chunked", "chunked\r\nTransfer-Encoding: chunked"}) {
    EXPECT_EQ(message(Concat("Transfer-Encoding: ", coding)),
              "Transfer-Encoding must be \"chunked\", and given once");
  }
}

TEST(RequestReaderTest, TakesNoMoreThanItsRequest) {
  for (const RequestText& text : RequestTexts()) {
    if (text.status != 0) continue;
    Reading alone = Read(text.bytes);
    EXPECT_EQ(alone.taken, text.bytes.size()) << text.bytes;
    EXPECT_EQ(Read(text.bytes + "GET / HTTP/1.1\r\n"), alone) << text.bytes;
  }
}

TEST(RequestReaderTest, TargetIsPathAndQuery) {
  const std::vector<std::vector<std::string>> cases = {
      {"/", "/", ""},
      {"/a/b%20c", "/a/b%20c", ""},
      {"/a?b=c&d?e", "/a", "b=c&d?e"},
      {"/?", "/", ""},
      {"http://h:80/a?b", "/a", "b"},
      {"HTTPS://h", "/", ""},
      {"http://h?q", "/", "q"},
      {"//h/a", "//h/a", ""},
  };
  for (const auto& parts : cases) {
    const Reading reading = Read(Get(parts[0]));
    const std::string expected = Concat("GET|", parts[1], "|", parts[2], "|");
    EXPECT_EQ(reading.request.substr(0, expected.size()), expected) << parts[0];
  }
}

TEST(RequestReaderTest, HeadersAreTrimmedAndFoundInAnyCase) {
  const Limits limits;
  RequestReader reader(&limits);
  reader.Read(Get("/", "X-One: \t a b \t\r\nx-ONE: second\r\nEmpty:\r\n"));
  const Request& request = reader.head().request;
  EXPECT_EQ(request.Find("x-one"), "a b");
  EXPECT_EQ(request.Find("EMPTY"), "");
  EXPECT_EQ(request.Find("none"), "");
  ASSERT_EQ(request.headers.size(), 4);
  EXPECT_EQ(request.headers[2].name, "x-ONE");
  EXPECT_EQ(request.headers[2].value, "second");
}

TEST(RequestReaderTest, KeepsAliveAsTheVersionAndTheClientSay) {
  const std::vector<std::pair<std::string, bool>> cases = {
      {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE\r\n\r\n", false},
      {"GET / HTTP/1.0\r\n\r\n", false},
      {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
  };
  const Limits limits;
  for (const auto& [text, keeps_alive] : cases) {
    RequestReader reader(&limits);
    reader.Read(text);
    EXPECT_EQ(reader.head().keep_alive, keeps_alive) << text;
  }
}

TEST(RequestReaderTest, TrailersAreNoHeaders) {
  const Reading reading = Read(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0\r\nAuthorization: secret\r\n\r\n");
  EXPECT_EQ(reading.state, State::kDone);
  EXPECT_EQ(reading.request.find("secret"), std::string::npos);
}

TEST(RequestReaderTest, ARequestHasAHundredHeadersAtMost) {
  std::string headers;
  for (int i = 1; i < 100; ++i) headers += "X: y\r\n";  // and Host
  EXPECT_EQ(Read(Get("/", headers)).state, State::kDone);
  EXPECT_EQ(StatusOf(Get("/", headers + "X: y\r\n")), 431);
}

TEST(RequestReaderTest, HeaderLimitIsMetExactly) {
  const std::string text = Get("/", "X: y\r\n");
  Limits limits;
  limits.max_header_bytes = std::ssize(text);
  EXPECT_EQ(Read(text, limits).state, State::kDone);
  limits.max_header_bytes = std::ssize(text) - 1;
  EXPECT_EQ(StatusOf(text, limits), 431);
  // At the first byte too many, not at the end.
  limits.max_header_bytes = 50;
  const std::string endless = "GET /" + std::string(100, 'a');
  EXPECT_EQ(Read(endless.substr(0, 50), limits).state, State::kHead);
  EXPECT_EQ(StatusOf(endless.substr(0, 51), limits), 431);
}

TEST(RequestReaderTest, BodyLimitIsMetExactly) {
  Limits limits;
  limits.max_body_bytes = 10;
  EXPECT_EQ(Read(Post("0123456789"), limits).state, State::kDone);
  EXPECT_EQ(StatusOf(Post("0123456789a"), limits), 413);
  // Before any of it has come.
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n",
                     limits),
            413);
  const std::string head =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(Read(head + "4\r\nabcd\r\n6\r\nefghij\r\n0\r\n\r\n", limits).state,
            State::kDone);
  EXPECT_EQ(StatusOf(head + "4\r\nabcd\r\n7\r\n", limits), 413);
  EXPECT_EQ(StatusOf(head + "b\r\n", limits), 413);
}

TEST(RequestReaderTest, ChunkLineAndTrailerLimitsAreMetExactly) {
  const std::string head =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  Limits limits;
  limits.max_header_bytes = std::ssize(head);
  const std::string digits(limits.max_header_bytes - 1, '0');
  const std::string end = "0\r\n\r\n";
  // The line's CR counts.
  EXPECT_EQ(Read(head + digits + "\r\n\r\n", limits).state, State::kDone);
  EXPECT_EQ(StatusOf(head + "0" + digits + "\r\n\r\n", limits), 431);
  const std::string extension = "1;" + digits.substr(2);
  EXPECT_EQ(Read(head + extension + "\r\nx\r\n" + end, limits).state,
            State::kDone);
  EXPECT_EQ(StatusOf(head + extension + "0\r\nx\r\n" + end, limits), 431);
  const std::string trailer(limits.max_header_bytes - 7, 'v');
  EXPECT_EQ(Read(head + "0\r\nX: " + trailer + "\r\n\r\n", limits).state,
            State::kDone);
  EXPECT_EQ(StatusOf(head + "0\r\nX: v" + trailer + "\r\n\r\n", limits), 431);
}

TEST(RequestReaderTest, MemoryIsTakenAsTheBodyComes) {
  const Limits limits;
  RequestReader reader(&limits);
  reader.Read("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16000000\r\n\r\n");
  EXPECT_EQ(reader.state(), State::kBody);
  EXPECT_LE(reader.head().request.body.capacity(), 64 << 10);
}

TEST(RequestReaderTest, HundredThousandChunksAreOneBody) {
  std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 100000; ++i) text += "1\r\nx\r\n";
  text += "0\r\n\r\n";
  const Limits limits;
  RequestReader reader(&limits);
  for (size_t i = 0; i < text.size(); i += 13) {
    reader.Read(std::string_view(text).substr(i, 13));
  }
  EXPECT_EQ(reader.state(), State::kDone);
  EXPECT_EQ(reader.head().request.body, std::string(100000, 'x'));
}

// Texts with some bytes replaced, taken out or repeated.
RC_GTEST_PROP(RequestReaderProperty, DamagedTextsAreReadAlikeHoweverCut, ()) {
  const auto& texts = RequestTexts();
  std::string bytes = texts[*rc::gen::inRange<size_t>(0, texts.size())].bytes;
  const int num_edits = *rc::gen::inRange(0, 4);
  for (int i = 0; i < num_edits && !bytes.empty(); ++i) {
    const size_t at = *rc::gen::inRange<size_t>(0, bytes.size());
    const auto byte = *rc::gen::oneOf(
        rc::gen::arbitrary<char>(),
        rc::gen::element<char>('\r', '\n', ' ', ':', '\0', '0', ',', ';'));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        bytes[at] = byte;
        break;
      case 1:
        bytes.erase(at, 1);
        break;
      default:
        bytes.insert(at, 1, byte);
    }
  }
  Limits limits;
  limits.max_header_bytes = 150;
  limits.max_body_bytes = 40;
  std::vector<std::string_view> pieces;
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t size = *rc::gen::inRange<size_t>(1, rest.size() + 1);
    pieces.push_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  RC_ASSERT(ReadPieces(pieces, limits) == Read(bytes, limits));
}

}  // namespace

}  // namespace espalier::http
