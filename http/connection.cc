#include "http/connection.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/stopwatch.h"
#include "http/exchange.h"
#include "http/limits.h"
#include "http/response_head.h"
#include "http/worker.h"

namespace espalier::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Connections on their way out that do not count as open ones.
constexpr int kMaxRefused = 256;

// Events that are sent without waiting for the client before other connections
// have their turn.
constexpr int kMaxSendsInARow = 32;

// Refuses a request that is late, with the time-out that it is part of.
Refusal Late(const LimitNames& names, RequestReader::State state) {
  const bool is_body = state == RequestReader::State::kBody;
  return {408, Concat("the request took too long to arrive",
                      InParentheses(is_body ? names.body_timeout
                                            : names.header_timeout))};
}

}  // namespace

// The state of the present answer that the log needs.
struct Connection::Logged {
  std::string client;
  std::string method;
  std::string path;
  std::string note = {};
  int status = 0;
  int64_t sent_before = 0;  // bytes of earlier answers of the connection
  Stopwatch since_begin = {};
};

Connection::Connection(Worker* worker, Socket socket)
    : worker_(worker),
      socket_(std::move(socket)),
      writer_(&socket_, &worker->limits(), &worker->counts().bytes_sent) {
  ++worker_->shared().num_connections;
  worker_->counts().open_connections.Add(1);
}

Connection::~Connection() {
  if (is_linked()) worker_->Remove(this);
  CountUnread(0);
  if (is_refused_) --worker_->shared().num_refused;
  if (lingers_) --worker_->shared().num_lingering;
  --worker_->shared().num_connections;
  worker_->counts().open_connections.Add(-1);
}

template <typename... Parts>
bool Connection::Send(Parts&&... parts) {
  try {
    if (writer_.Send(std::forward<Parts>(parts)...)) return true;
  } catch (...) {
    Close();
    throw;
  }
  DropClient();
  return false;
}

bool Connection::FinishFlush(SocketWriter::Flushed flushed) {
  if (flushed == SocketWriter::Flushed::kClientGone) DropClient();
  return flushed == SocketWriter::Flushed::kAll;
}

template <typename Work>
void Connection::Guard(Work work) {
  try {
    work();
  } catch (const std::exception&) {
    Abort();
  }
}

void Connection::Start() {
  Guard([this] {
    error_code ignored;
    socket_.non_blocking(true);
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    if (const int64_t size = worker_->limits().max_unsent_bytes; size > 0) {
      const auto most = static_cast<int>(std::min<int64_t>(size, 1 << 30));
      socket_.set_option(asio::socket_base::send_buffer_size(most), ignored);
    }
    BeginRead();
  });
}

void Connection::Refuse() {
  Guard([this] {
    worker_->counts().refused_connections.Add(1);
    is_refused_ = true;
    if (++worker_->shared().num_refused > kMaxRefused) return Close();
    socket_.non_blocking(true);
    Fail(503, Concat("there are too many connections",
                     InParentheses(worker_->limits().names.max_connections)));
  });
}

void Connection::Abort() {
  const bool runs = phase_ == Phase::kExchange;
  Close();
  if (runs) cancel_.emit(asio::cancellation_type::terminal);
}

void Connection::Check(Clock::time_point now, bool others_wait) {
  Guard([this, now, others_wait] {
    const bool is_due = now >= deadline_;
    const bool is_in_the_way =
        others_wait && phase_ == Phase::kExchange && holds_place_;
    if (!is_in_the_way) writer_.ForgetLag();
    if (phase_ == Phase::kLinger && is_due) {
      Close();
    } else if (phase_ == Phase::kRead && is_due) {
      if (reader_ == nullptr ||
          reader_->state() == RequestReader::State::kEmpty) {
        return Close();
      }
      worker_->counts().timeouts.Add(1);
      const auto late = Late(worker_->limits().names, reader_->state());
      Fail(late.status, late.message);
    } else if (phase_ == Phase::kExchange && waits_body_ && is_due) {
      worker_->counts().timeouts.Add(1);
      reader_->Refuse(Late(worker_->limits().names, reader_->state()));
      error_code ignored;
      socket_.cancel(ignored);
    } else if (phase_ == Phase::kExchange &&
               (writer_.IsLate(now) ||
                (is_in_the_way && writer_.IsBehind(now)))) {
      CutSlowReader();
    } else if (phase_ == Phase::kExchange && !waits_readable_ &&
               !is_answered_) {
      if (was_checked_ && HasHungUp()) return DropClient();
      was_checked_ = true;
    }
  });
}

std::string Connection::ClientAddress() const {
  error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  return error ? "" : endpoint.address().to_string();
}

// Reading.

void Connection::WaitReadable() {
  if (waits_readable_) return;
  waits_readable_ = true;
  socket_.async_wait(Socket::wait_read,
                     [self = shared_from_this()](const error_code& error) {
                       self->waits_readable_ = false;
                       if (!error) self->Guard([&] { self->OnReadable(); });
                     });
}

void Connection::OnReadable() {
  if (phase_ == Phase::kClosed) return;
  auto& buffer = worker_->read_buffer();
  error_code error;
  const size_t count = socket_.read_some(asio::buffer(buffer), error);
  if (IsTransient(error)) return WaitReadable();
  if (error) return OnReceiveError(error);
  worker_->counts().bytes_received.Add(static_cast<int64_t>(count));
  Receive(std::string_view(buffer.data(), count));
}

void Connection::OnReceiveError(const error_code& error) {
  if (phase_ == Phase::kExchange && is_answered_ && error == asio::error::eof) {
    // The client may still read the answer.
    close_after_ = true;
  } else {
    DropClient();
  }
}

void Connection::Receive(std::string_view bytes) {
  if (phase_ == Phase::kRead) {
    ReadRequest(bytes);
  } else if (phase_ == Phase::kExchange) {
    input_.assign(bytes);
  } else {
    // Time alone limits them: they take no memory.
    deadline_ = std::min(After(worker_->limits().linger_timeout), linger_end_);
    WaitReadable();
  }
}

void Connection::BeginRead() {
  phase_ = Phase::kRead;
  deadline_ = After(worker_->limits().idle_timeout);
  if (input_.empty()) return WaitReadable();
  ReadRequest(std::string_view(input_).substr(input_begin_));
}

// `bytes` are those of input_, unless it is empty.
void Connection::ReadRequest(std::string_view bytes) {
  if (reader_ == nullptr) {
    reader_ = std::make_unique<RequestReader>(
        &worker_->limits(), &worker_->shared().streamed_body_limit);
  }
  const RequestReader::State before = reader_->state();
  KeepInput(bytes.substr(reader_->Read(bytes)));
  switch (reader_->state()) {
    case RequestReader::State::kDone:
      return BeginExchange();
    case RequestReader::State::kRefused:
      return Fail(reader_->refusal().status, reader_->refusal().message);
    default:
      if (!CheckBody(before)) return;
      SetReadDeadline(before);
      SendContinue(before);
      if (phase_ != Phase::kRead) return;
      if (reader_->state() == RequestReader::State::kBody &&
          reader_->is_streamed()) {
        return BeginExchange();
      }
      WaitReadable();
  }
}

void Connection::KeepInput(std::string_view rest) {
  if (rest.empty()) {
    input_ = std::string();
    input_begin_ = 0;
  } else if (input_.empty()) {
    input_.assign(rest);
  } else {
    input_begin_ = input_.size() - rest.size();
  }
}

void Connection::SetReadDeadline(RequestReader::State before) {
  using State = RequestReader::State;
  const Limits& limits = worker_->limits();
  const State state = reader_->state();
  if (state == State::kHead && before == State::kEmpty) {
    deadline_ = After(limits.header_timeout);
  } else if (state == State::kBody) {
    if (before != State::kBody) body_deadline_ = After(limits.body_timeout);
    deadline_ =
        body_deadline_ +
        std::chrono::seconds(reader_->num_body_bytes() / limits.min_body_rate);
  }
}

bool Connection::CheckBody(RequestReader::State before) {
  if (reader_->state() != RequestReader::State::kBody) return true;
  const ServerShared& shared = worker_->shared();
  const Request& request = reader_->head().request;
  if (before != RequestReader::State::kBody && shared.head_check != nullptr) {
    if (auto refusal = shared.head_check(request)) {
      FailWith(refusal->response, std::move(refusal->note));
      return false;
    }
  }
  CountUnread(static_cast<int64_t>(request.body.capacity()));
  if (shared.unread_bytes <= shared.limits.max_unread_bytes) return true;
  Fail(503, "too many bodies are on their way");
  return false;
}

void Connection::DropReader() {
  reader_.reset();
  CountUnread(0);
}

void Connection::CountUnread(int64_t bytes) {
  if (bytes == unread_bytes_) return;
  worker_->shared().unread_bytes += bytes - unread_bytes_;
  unread_bytes_ = bytes;
}

void Connection::SendContinue(RequestReader::State before) {
  constexpr std::string_view kContinue[] = {"HTTP/1.1 100 Continue\r\n\r\n"};
  if (before == RequestReader::State::kBody ||
      reader_->state() != RequestReader::State::kBody) {
    return;
  }
  const RequestHead& head = reader_->head();
  if (!head.expects_continue || !head.request.body.empty()) return;
  if (!Send(kContinue) || !writer_.is_empty()) Close();
}

asio::awaitable<std::string> Connection::ReadBody() {
  using State = RequestReader::State;
  const auto check = [this] {
    // The server ends the exchange by it.
    if (client_gone() ||
        (reader_ != nullptr && reader_->state() == State::kRefused)) {
      throw boost::system::system_error(asio::error::operation_aborted);
    }
  };
  check();
  if (reader_ == nullptr) co_return "";
  body_deadline_ += Clock::now() - body_paused_at_;
  while (reader_->state() == State::kBody &&
         reader_->head().request.body.empty()) {
    SetReadDeadline(State::kBody);
    waits_body_ = true;
    const auto [wait_error] = co_await socket_.async_wait(
        Socket::wait_read, asio::as_tuple(asio::use_awaitable));
    waits_body_ = false;
    check();
    if (!wait_error) ReceiveBody();
    check();
  }
  std::string& body = reader_->head().request.body;
  std::string piece = std::exchange(body, std::string());
  body_paused_at_ = Clock::now();
  if (reader_->state() == State::kDone) {
    DropReader();
    if (input_.empty()) WaitReadable();
  }
  co_return piece;
}

void Connection::ReceiveBody() {
  auto& buffer = worker_->read_buffer();
  error_code error;
  const size_t count = socket_.read_some(asio::buffer(buffer), error);
  if (IsTransient(error)) return;
  if (error) return DropClient();
  worker_->counts().bytes_received.Add(static_cast<int64_t>(count));
  const std::string_view bytes(buffer.data(), count);
  KeepInput(bytes.substr(reader_->Read(bytes)));
}

// Exchanges.

// Called at the end of an exchange, or destroyed without a call: if a coroutine
// lacks the memory to wait, asio destroys it without notice. The client then
// gets no answer, or a part of one.
class Connection::ExchangeEnd {
 public:
  explicit ExchangeEnd(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {
    connection_->worker_->counts().running_exchanges.Add(1);
  }
  ExchangeEnd(ExchangeEnd&&) = default;
  ExchangeEnd& operator=(ExchangeEnd&&) = delete;
  ~ExchangeEnd() {
    if (connection_ != nullptr) End(/*failed=*/true);
  }

  void operator()(const std::exception_ptr& error) { End(error != nullptr); }

 private:
  void End(bool failed) {
    const auto connection = std::exchange(connection_, nullptr);
    if (failed) connection->Close();
    connection->EndExchange();
  }

  std::shared_ptr<Connection> connection_;  // null once it has ended
};

void Connection::BeginExchange() {
  RequestHead head = std::move(reader_->head());
  const bool is_whole = reader_->state() == RequestReader::State::kDone;
  if (is_whole) {
    DropReader();
  } else {
    reader_->head().request.body.clear();
  }
  is_http_1_0_ = head.is_http_1_0;
  is_head_ = head.request.method == "HEAD";
  keep_alive_ = head.keep_alive;
  close_after_ = false;
  is_answered_ = false;
  sends_pieces_ = false;
  was_checked_ = false;
  holds_place_ = false;
  body_paused_at_ = Clock::now();
  BeginLog(head.request);
  phase_ = Phase::kExchange;
  if (is_whole && input_.empty()) WaitReadable();
  // Runs the handler from here as far as it does not wait.
  asio::co_spawn(socket_.get_executor(), Serve(std::move(head)),
                 asio::bind_cancellation_slot(cancel_.slot(),
                                              ExchangeEnd(shared_from_this())));
}

asio::awaitable<void> Connection::Serve(RequestHead head) {
  Exchange exchange(this, std::move(head.request));
  bool failed = false;
  try {
    co_await worker_->shared().handler(exchange);
  } catch (...) {
    failed = true;
  }
  // Else co_spawn throws out of its own frame, and completes nothing, where a
  // handler was cancelled before it ever waited.
  co_await asio::this_coro::throw_if_cancelled(false);
  if (client_gone()) co_return;
  if (!exchange.begun()) {
    const bool is_refused = reader_ != nullptr &&
                            reader_->state() == RequestReader::State::kRefused;
    const Refusal failure = {
        500, failed ? "the request failed" : "the request was not answered"};
    const Refusal& refusal = is_refused ? reader_->refusal() : failure;
    co_await Respond(
        worker_->shared().error_response(refusal.status, refusal.message));
  } else if (!is_answered_ && (failed || !sends_pieces_)) {
    // Half of an answer, or less: what came next would be taken for the rest.
    Close();
    co_return;
  } else if (sends_pieces_ && !is_http_1_0_ && !is_head_) {
    constexpr std::string_view kLastChunk[] = {"0\r\n\r\n"};
    Send(kLastChunk);
  }
  if (!writer_.is_empty()) FinishFlush(co_await writer_.Flush());
}

void Connection::EndExchange() {
  worker_->counts().running_exchanges.Add(-1);
  EndLog(/*is_whole=*/phase_ != Phase::kClosed);
  writer_.Drop();
  if (phase_ == Phase::kClosed) return;
  Guard([this] { close_after_ ? BeginLinger() : BeginRead(); });
}

void Connection::Fail(int status, std::string_view message) {
  FailWith(worker_->shared().error_response(status, message));
}

void Connection::FailWith(const Response& response, std::string note) {
  static const Request kUnread;
  const Request& request =
      reader_ == nullptr ? kUnread : reader_->head().request;
  BeginLog(request);
  SetNote(std::move(note));
  is_http_1_0_ = false;
  is_head_ = request.method == "HEAD";
  keep_alive_ = false;
  DropReader();
  const std::string_view parts[] = {
      MakeHead(response, BodyFraming::kLength),
      is_head_ ? std::string_view() : std::string_view(response.body)};
  // A client that does not even take this is not waited for.
  const bool is_sent = Send(parts) && writer_.is_empty();
  EndLog(is_sent);
  if (!is_sent) return Close();
  BeginLinger();
}

void Connection::BeginLog(const Request& request) {
  if (worker_->shared().answer_log == nullptr) return;
  logged_ = std::make_unique<Logged>(Logged{.client = ClientAddress(),
                                            .method = request.method,
                                            .path = request.path,
                                            .sent_before = writer_.num_sent()});
}

void Connection::EndLog(bool is_whole) {
  if (logged_ == nullptr) return;
  const std::unique_ptr<Logged> logged = std::move(logged_);
  worker_->shared().answer_log(
      {.client = logged->client,
       .method = logged->method,
       .path = logged->path,
       .note = logged->note,
       .status = logged->status,
       .num_bytes = writer_.num_sent() - logged->sent_before,
       .elapsed = logged->since_begin.Elapsed(),
       .is_whole = is_whole});
}

void Connection::SetNote(std::string note) {
  if (logged_ != nullptr) logged_->note = std::move(note);
}

void Connection::BeginLinger() {
  phase_ = Phase::kLinger;
  DropReader();
  input_ = std::string();
  input_begin_ = 0;
  const Limits& limits = worker_->limits();
  deadline_ = After(limits.linger_timeout);
  linger_end_ = deadline_;
  if (!is_refused_) {
    lingers_ = true;
    const int num_lingering = ++worker_->shared().num_lingering;
    if (num_lingering <= limits.max_lingering) {
      linger_end_ = After(limits.max_linger);
    }
  }
  deadline_ = std::min(deadline_, linger_end_);
  error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  WaitReadable();
}

void Connection::DropClient() {
  if (phase_ == Phase::kExchange) worker_->counts().clients_gone.Add(1);
  Abort();
}

void Connection::Close() {
  phase_ = Phase::kClosed;
  DropReader();
  error_code ignored;
  socket_.close(ignored);
}

bool Connection::HasHungUp() {
  pollfd poll_fd = {};
  poll_fd.fd = socket_.native_handle();
  poll_fd.events = POLLRDHUP;
  return poll(&poll_fd, 1, 0) > 0;
}

asio::awaitable<bool> Connection::Respond(Response response) {
  if (client_gone()) co_return false;
  const bool has_body = !is_head_ && !HasNoBody(response.status);
  const std::string_view head = MakeHead(response, BodyFraming::kLength);
  if (!Send(head, has_body ? std::move(response.body) : std::string())) {
    co_return false;
  }
  is_answered_ = true;
  if (writer_.is_empty()) co_return true;
  co_return FinishFlush(co_await writer_.Flush());
}

asio::awaitable<bool> Connection::BeginStream(Response head) {
  if (client_gone()) co_return false;
  const std::string_view parts[] = {MakeHead(
      head, is_http_1_0_ ? BodyFraming::kUntilClose : BodyFraming::kChunked)};
  if (!Send(parts)) co_return false;
  sends_pieces_ = true;
  if (writer_.is_empty()) co_return true;
  co_return FinishFlush(co_await writer_.Flush());
}

asio::awaitable<bool> Connection::SendPiece(std::string_view piece) {
  if (client_gone()) co_return false;
  if (is_head_ || piece.empty()) co_return true;
  if (is_http_1_0_) {
    const std::string_view parts[] = {piece};
    if (!Send(parts)) co_return false;
  } else {
    char size[24];
    const int length =
        std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
    const std::string_view parts[] = {
        std::string_view(size, static_cast<size_t>(length)), piece, "\r\n"};
    if (!Send(parts)) co_return false;
  }
  if (!writer_.is_empty()) {
    sends_in_a_row_ = 0;
    co_return FinishFlush(co_await writer_.Flush());
  }
  if (++sends_in_a_row_ == kMaxSendsInARow) {
    sends_in_a_row_ = 0;
    co_await asio::post(socket_.get_executor(), asio::use_awaitable);
  }
  co_return !client_gone();
}

std::string_view Connection::MakeHead(const Response& response,
                                      BodyFraming framing) {
  close_after_ = !keep_alive_ || response.close ||
                 framing == BodyFraming::kUntilClose ||
                 reader_ != nullptr ||  // the rest of a body may follow
                 worker_->shared().draining;
  const int status_class = std::clamp(response.status / 100, 0, 5);
  worker_->counts().responses[status_class].Add(1);
  if (logged_ != nullptr) logged_->status = response.status;
  std::string& head = worker_->head_buffer();
  head.clear();
  AppendResponseHead(response,
                     {.body = framing,
                      .close = close_after_,
                      .says_keep_alive = is_http_1_0_ && !close_after_},
                     worker_->date(), &head);
  return head;
}

void Connection::CutSlowReader() {
  worker_->counts().slow_readers.Add(1);
  if (logged_ != nullptr) {
    logged_->note += logged_->note.empty() ? "slow" : " slow";
  }
  // Drops the bytes that the system holds for the client, too.
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  DropClient();
}

}  // namespace espalier::http
