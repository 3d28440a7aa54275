#include "http/header_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/optional/optional.hpp>
#include <charconv>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "base/status.h"

namespace espalier::http {

namespace beast = boost::beast;

namespace {

// The message for a wrong length of a body.
constexpr char kBadLength[] =
    "Content-Length must be the number of the body's bytes, in [0, 2^64)";
constexpr char kManyLengths[] = "Content-Length must be given once";
constexpr char kBothLengths[] =
    "Content-Length and Transfer-Encoding exclude each other";
constexpr char kBadCoding[] =
    "Transfer-Encoding must be \"chunked\", and given once";

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(ToAbsl(a), ToAbsl(b));
}

std::string ToString(beast::string_view text) {
  return std::string(text.data(), text.size());
}

// Hands on what Beast finds. Lengths and codings are ours to judge, and bodies
// are never given to it.
class HeadParser : public beast::http::basic_parser<true> {
 public:
  HeadParser(int64_t max_headers, RequestHead* head)
      : max_headers_(max_headers), head_(head) {}

 private:
  using Error = beast::error_code;
  using Text = beast::string_view;
  using Size = std::uint64_t;

  void on_request_impl(beast::http::verb, Text method, Text target, int version,
                       Error& error) override {
    error = {};
    head_->request.method = ToString(method);
    head_->request.path = ToString(target);  // whole for now
    head_->is_http_1_0 = version == 10;
  }
  void on_field_impl(beast::http::field, Text name, Text value,
                     Error& error) override {
    if (std::ssize(head_->request.headers) == max_headers_) {
      error = beast::http::error::header_limit;
      return;
    }
    error = {};
    head_->request.headers.push_back({ToString(name), ToString(value)});
  }
  void on_header_impl(Error& error) override { error = {}; }
  void on_response_impl(int, Text, int, Error&) override {}
  void on_body_init_impl(const boost::optional<Size>&, Error&) override {}
  size_t on_body_impl(Text, Error&) override { return 0; }
  void on_chunk_header_impl(Size, Text, Error&) override {}
  size_t on_chunk_body_impl(Size, Text, Error&) override { return 0; }
  void on_finish_impl(Error& error) override { error = {}; }

  const int64_t max_headers_;
  RequestHead* head_;
};

std::optional<Refusal> ParseByGrammar(std::string_view text,
                                      const NamedLimit& max_headers,
                                      RequestHead* head) {
  using Error = beast::http::error;
  HeadParser parser(max_headers.value, head);
  parser.header_limit(static_cast<uint32_t>(text.size()) + 1);
  parser.body_limit(boost::none);
  beast::error_code error;
  parser.put(boost::asio::const_buffer(text.data(), text.size()), error);
  if (error == Error::bad_method || error == Error::bad_target) {
    return Refusal{400, "the request line is malformed"};
  }
  if (error == Error::bad_version) {
    // An HTTP/2 client without negotiation begins with this line, and waits.
    if (text.starts_with("PRI * HTTP/2")) {
      return Refusal{505, "HTTP/2 is not supported: use HTTP/1.1"};
    }
    return Refusal{400, "the protocol is neither HTTP/1.1 nor HTTP/1.0"};
  }
  // Bytes are not limited here.
  if (error == Error::header_limit) {
    return Refusal{
        431, Concat("the request ", MustHaveAtMost(max_headers, "headers"))};
  }
  // Beast refuses the second of the two headers.
  const auto has = [&](std::string_view name) {
    return FindHeader(head->request.headers, name).data() != nullptr;
  };
  if (error == Error::bad_content_length) {
    return Refusal{400, has("transfer-encoding") ? kBothLengths : kBadLength};
  }
  if (error == Error::multiple_content_length) {
    return Refusal{400, kManyLengths};
  }
  if (error == Error::bad_transfer_encoding) {
    return Refusal{400, has("content-length") ? kBothLengths : kBadCoding};
  }
  if (error || !parser.is_header_done()) {
    return Refusal{400, "a header is malformed"};
  }
  head->keep_alive = parser.keep_alive();
  return std::nullopt;
}

// False if it has what separates an authority from other parts of a URI, or two
// hosts.
bool IsHost(std::string_view value) {
  return value.find_first_of(" \t/?#@\\,\"<>") == std::string_view::npos;
}

// Splits the target into path and query: "/path?query",
// "http://host/path?query", which clients of proxies send, or "*".
std::optional<Refusal> SplitTarget(Request* request) {
  const Refusal malformed = {400, "the request's target is malformed"};
  std::string_view target = request->path;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsIgnoringCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0 || !IsHost(target.substr(0, end))) return malformed;
    target.remove_prefix(end);
    break;
  }
  const bool is_absolute = target.size() != request->path.size();
  const size_t mark = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, mark);
  if (target.find('#') != std::string_view::npos) return malformed;
  const bool is_path = path.starts_with('/') || (is_absolute && path.empty());
  if (!is_path && !(path == "*" && request->method == "OPTIONS")) {
    return malformed;
  }
  request->query = mark < target.size() ? target.substr(mark + 1) : "";
  request->path = path.empty() ? "/" : std::string(path);
  return std::nullopt;
}

// Values of the headers that may come at most once.
struct Singles {
  int num_hosts = 0;
  int num_lengths = 0;
  int num_codings = 0;
  std::string_view host;
  std::string_view length;
  std::string_view coding;
  std::string_view expect;
};

Singles FindSingles(const std::vector<Header>& headers) {
  Singles singles;
  for (const auto& [name, value] : headers) {
    if (EqualsIgnoringCase(name, "Host")) {
      ++singles.num_hosts;
      singles.host = value;
    } else if (EqualsIgnoringCase(name, "Content-Length")) {
      ++singles.num_lengths;
      singles.length = value;
    } else if (EqualsIgnoringCase(name, "Transfer-Encoding")) {
      ++singles.num_codings;
      singles.coding = value;
    } else if (EqualsIgnoringCase(name, "Expect")) {
      singles.expect = value;
    }
  }
  return singles;
}

// RFC 9112, section 6.3, where a choice is open by the stricter one.
std::optional<Refusal> FindLength(const Singles& singles, RequestHead* head) {
  if (singles.num_codings > 0) {
    if (singles.num_lengths > 0) {
      return Refusal{400, kBothLengths};
    }
    if (head->is_http_1_0 || singles.num_codings > 1 ||
        !EqualsIgnoringCase(singles.coding, "chunked")) {
      return Refusal{400, kBadCoding};
    }
    head->is_chunked = true;
    return std::nullopt;
  }
  if (singles.num_lengths == 0) return std::nullopt;
  const char* const begin = singles.length.data();
  const char* const end = begin + singles.length.size();
  const auto [last, error] = std::from_chars(begin, end, head->content_length);
  if (singles.num_lengths > 1) return Refusal{400, kManyLengths};
  if (last != end || error != std::errc()) return Refusal{400, kBadLength};
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> ParseRequestHead(std::string_view text,
                                        const NamedLimit& max_headers,
                                        RequestHead* head) {
  if (auto refusal = ParseByGrammar(text, max_headers, head)) return refusal;
  if (auto refusal = SplitTarget(&head->request)) return refusal;
  const Singles singles = FindSingles(head->request.headers);
  if (singles.num_hosts > 1 || !IsHost(singles.host)) {
    return Refusal{400, "the Host header is malformed"};
  }
  if (singles.num_hosts == 0 && !head->is_http_1_0) {
    return Refusal{400, "there is no Host header"};
  }
  if (auto refusal = FindLength(singles, head)) return refusal;
  // HTTP/1.0 does not define the Expect header.
  if (singles.expect.empty() || head->is_http_1_0) return std::nullopt;
  if (!EqualsIgnoringCase(singles.expect, "100-continue")) {
    return Refusal{417, "Expect must be \"100-continue\""};
  }
  head->expects_continue = true;
  return std::nullopt;
}

}  // namespace espalier::http
