#include "tests/http/request_texts.h"

#include <string_view>
#include <vector>

namespace espalier::http {

namespace {

using std::string_literals::operator""s;

// Returns a POST with a Host and these headers, an empty line and `rest`.
std::string PostWith(std::string_view headers, std::string_view rest) {
  std::string text = "POST /p HTTP/1.1\r\nHost: h\r\n";
  text += headers;
  text += "\r\n";
  text += rest;
  return text;
}

std::string Chunked(std::string_view chunks) {
  return PostWith("Transfer-Encoding: chunked\r\n", chunks);
}

std::vector<RequestText> GoodTexts() {
  return {
      {0, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {0, "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {0, "GET / HTTP/1.0\r\n\r\n"},
      {0, "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
      {0, "OPTIONS * HTTP/1.1\r\nhOST: h:80\r\n\r\n"},
      {0, "BREW /pot?x=y HTTP/1.1\r\nHost: [::1]:80\r\nA: \x80\xff\r\n\r\n"},
      {0, "GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {0, PostWith("Content-Length: 4\r\n", "\r\n\0\xff"s)},
      {0, PostWith("Content-Length: 0004\r\n", "abcd")},
      {0, PostWith("Content-Length: 0\r\n", "")},
      {0, PostWith("Expect: 100-CONTINUE\r\nContent-Length: 1\r\n", "x")},
      {0, "POST / HTTP/1.0\r\nExpect: x\r\nContent-Length: 1\r\n\r\nx"},
      {0, Chunked("0\r\n\r\n")},
      {0, Chunked("3\r\nabc\r\n0\r\n\r\n")},
      {0, Chunked("003\r\nabc\r\nA\r\n0123456789\r\n000\r\n\r\n")},
      {0, Chunked("1;a=b;c=\"d;e\"\r\nx\r\n0;f\r\nT: t\r\nU: u\r\n\r\n")},
      {0, Chunked("1 \t;a\r\n\r\r\n0\r\n\r\n")},
      {0, PostWith("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n")},
  };
}

// Requests that proxies and servers are known to parse differently.
std::vector<RequestText> SmugglingTexts() {
  const std::string inner = "0\r\n\r\nGET /x HTTP/1.1\r\nHost: h\r\n\r\n";
  return {
      {400,
       PostWith("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", inner)},
      {400,
       PostWith("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", inner)},
      {400, PostWith("Content-Length: 0\r\nContent-Length: 4\r\n", "abcd")},
      {400, PostWith("Content-Length: 4\r\nContent-Length: 4\r\n", "abcd")},
      {400, PostWith("Content-Length: 4, 4\r\n", "abcd")},
      {400, PostWith("Content-Length: +4\r\n", "abcd")},
      {400, PostWith("Content-Length: -4\r\n", "abcd")},
      {400, PostWith("Content-Length: 0x4\r\n", "abcd")},
      {400, PostWith("Content-Length: 4a\r\n", "abcd")},
      {400, PostWith("Content-Length: 4 4\r\n", "abcd")},
      {400, PostWith("Content-Length:\r\n", "abcd")},
      {400, PostWith("Content-Length : 4\r\n", "abcd")},
      {400, PostWith(" Content-Length: 4\r\n", "abcd")},
      {400, PostWith("Content-Length: 18446744073709551616\r\n", "")},
      {413, PostWith("Content-Length: 18446744073709551615\r\n", "")},
      {400, PostWith("Transfer-Encoding: gzip\r\n", inner)},
      {400, PostWith("Transfer-Encoding: gzip, chunked\r\n", inner)},
      {400, PostWith("Transfer-Encoding: chunked, chunked\r\n", inner)},
      {400, PostWith("Transfer-Encoding: chunked\r\n"
                     "Transfer-Encoding: chunked\r\n",
                     inner)},
      {400, PostWith("Transfer-Encoding: chunked\r\n"
                     "Transfer-Encoding: identity\r\n",
                     inner)},
      {400, PostWith("Transfer-Encoding: identity\r\n"
                     "Transfer-Encoding: chunked\r\n",
                     inner)},
      {400, PostWith("Transfer-Encoding: identity\r\nContent-Length: 4\r\n",
                     "abcd")},
      {400, PostWith("Transfer-Encoding: xchunked\r\n", inner)},
      {400, PostWith("Transfer-Encoding: \"chunked\"\r\n", inner)},
      {400, PostWith("Transfer-Encoding: chunked;q=1\r\n", inner)},
      {400, PostWith("Transfer-Encoding: \x0b"
                     "chunked\r\n",
                     inner)},
      {400, PostWith("Transfer-Encoding:\r\n chunked\r\n", inner)},
      {400, PostWith("Transfer-Encoding:\r\n", inner)},
      {400, PostWith("Transfer-Encoding : chunked\r\n", inner)},
      {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + inner},
      {400, Chunked("3\nabc\n0\n\n")},
      {400, Chunked("3\r\nabcd\r\n0\r\n\r\n")},
      {400, Chunked("3\r\nab\r\n0\r\n\r\n")},
      {400, Chunked("3;a=\"\n\"\r\nabc\r\n0\r\n\r\n")},
      {400, Chunked("3;a\rb\r\nabc\r\n0\r\n\r\n")},
      {400, Chunked("3 \r\nabc\r\n0\r\n\r\n")},
      {400, Chunked(" 3\r\nabc\r\n0\r\n\r\n")},
      {400, Chunked("0x3\r\nabc\r\n0\r\n\r\n")},
      {400, Chunked("-3\r\nabc\r\n0\r\n\r\n")},
      {400, Chunked("\r\nabc\r\n0\r\n\r\n")},
      {400, Chunked("0\r\nT: t\n\r\n")},
      {400, Chunked("0\r\nT: t\r\n folded\r\n\r\n")},
      {413, Chunked("ffffffffffffffff\r\n")},
      {413, Chunked("10000000000000000\r\n")},
      {413, Chunked("7fffffffffffffff\r\n")},
  };
}

std::vector<RequestText> MalformedTexts() {
  return {
      {400, "GET / HTTP/1.1\nHost: h\n\n"},
      {400, "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "\r\rGET / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n"s},
      {400, "GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n"s},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nA: b\x7f\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\n\tA: b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nNoColon\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nA b: c\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: h\r\nConnection: a b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
      {400, "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
      {400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"},
      {400, "GET  / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET /  HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET / HTTP/1.1 \r\nHost: h\r\n\r\n"},
      {400, "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "G@T / HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET * HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET http://u@h/a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET ftp://h/a HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET / HTTP/1.2\r\nHost: h\r\n\r\n"},
      {400, "GET / HTTP/0.9\r\nHost: h\r\n\r\n"},
      {400, "GET / HTTP/2.0\r\nHost: h\r\n\r\n"},
      {400, "GET / http/1.1\r\nHost: h\r\n\r\n"},
      {400, "GET / HTTP/1.10\r\nHost: h\r\n\r\n"},
      {400, "GET /\r\n\r\n"},
      {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s},
      {400, " \r\n\r\n"},
      {400, "garbage\r\n\r\n"},
      {417, PostWith("Expect: 200-ok\r\nContent-Length: 1\r\n", "x")},
  };
}

std::vector<RequestText> AllTexts() {
  std::vector<RequestText> texts = GoodTexts();
  for (const auto& more : {SmugglingTexts(), MalformedTexts()}) {
    texts.insert(texts.end(), more.begin(), more.end());
  }
  return texts;
}

}  // namespace

const std::vector<RequestText>& RequestTexts() {
  static const std::vector<RequestText> texts = AllTexts();
  return texts;
}

}  // namespace espalier::http
