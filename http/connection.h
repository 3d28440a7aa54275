// Connection: a client's socket, from its first byte to its last. It reads a
// request without a coroutine, has one spawned that handles it and writes the
// answer, meanwhile watches the client, and then reads the next.
//
//   kRead ── request whole ──> kExchange ── answer written ──> kRead
//     │ refused, timed out         │ the answer ends the connection
//     └─────────> kLinger <────────┘      (and from everywhere, kClosed)
//                    └── client closed, or late ──> kClosed
//
// A read is pending at any time, for the next request or for the client's end,
// which are the same event, except while bytes of the next request are already
// buffered. So at most one read's worth of data is buffered ahead, and the
// client's end is still noticed (Check). A streamed body is read by its
// handler, in kExchange.
//
// Thread safety: its worker's thread alone. Callbacks and coroutines hold it.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/intrusive/list_hook.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "http/peer.h"
#include "http/request_reader.h"
#include "http/response_head.h"
#include "http/socket.h"
#include "http/socket_writer.h"

namespace espalier::http {

class Worker;  // http/worker.h

class Connection : public Peer,
                   public std::enable_shared_from_this<Connection>,
                   public boost::intrusive::list_base_hook<> {
 public:
  Connection(Worker* worker, Socket socket);
  ~Connection() override;

  // Begins to read.
  void Start();
  // Answers that there are too many connections, and closes.
  void Refuse();
  // Closes the connection and cancels its handler.
  void Abort();
  // Handles what is due: time-outs, and the end of a client that is not read.
  // `others_wait`: for what exchanges hold (ServerOptions::others_wait).
  void Check(Clock::time_point now, bool others_wait);

  // For an Exchange, which says what each does.
  boost::asio::any_io_executor executor() override {
    return socket_.get_executor();
  }
  std::string ClientAddress() const override;
  bool client_gone() const override { return phase_ == Phase::kClosed; }
  void SetNote(std::string note) override;
  void SetHoldsPlace(bool holds_place) override { holds_place_ = holds_place; }
  boost::asio::awaitable<std::string> ReadBody() override;
  boost::asio::awaitable<bool> Respond(Response response) override;
  boost::asio::awaitable<bool> BeginStream(Response head) override;
  boost::asio::awaitable<bool> SendPiece(std::string_view piece) override;

 private:
  enum class Phase { kRead, kExchange, kLinger, kClosed };
  class ExchangeEnd;
  struct Logged;

  // Runs `work`; ends the connection if it throws for lack of memory.
  template <typename Work>
  void Guard(Work work);

  // Reading.
  void WaitReadable();
  void OnReadable();
  void OnReceiveError(const boost::system::error_code& error);
  void Receive(std::string_view bytes);
  void BeginRead();
  void ReadRequest(std::string_view bytes);
  void KeepInput(std::string_view rest);
  void SetReadDeadline(RequestReader::State before);
  // Refuses a body whose rest is not needed, and returns false then.
  bool CheckBody(RequestReader::State before);
  void DropReader();
  // Sets the bytes that are counted of a body on its way.
  void CountUnread(int64_t bytes);
  // If the client waits for it.
  void SendContinue(RequestReader::State before);
  // Reads on for a body that is streamed.
  void ReceiveBody();

  // Exchanges.
  void BeginExchange();
  boost::asio::awaitable<void> Serve(RequestHead head);
  void EndExchange();
  // Answers without a handler, and ends the connection.
  void Fail(int status, std::string_view message);
  void FailWith(const Response& response, std::string note = {});
  void BeginLinger();
  // The client has gone, or has to go.
  void DropClient();
  void Close();
  bool HasHungUp();

  // The log of answers, if there is one.
  void BeginLog(const Request& request);
  void EndLog(bool is_whole);

  // Writing.
  std::string_view MakeHead(const Response& response, BodyFraming framing);
  // SocketWriter::Send. Returns false if the client has gone; its connection
  // has ended then, as it has if memory for the unsent part is lacking.
  template <typename... Parts>
  bool Send(Parts&&... parts);
  // True if all was sent. If the client has gone, its connection ends.
  bool FinishFlush(SocketWriter::Flushed flushed);
  void CutSlowReader();

  Worker* const worker_;  // outlives it
  Socket socket_;
  SocketWriter writer_;
  Phase phase_ = Phase::kRead;
  bool waits_readable_ = false;
  bool is_refused_ = false;  // beyond max_connections

  // kRead, and kExchange while waits_body_: the end of the present time-out.
  // kLinger: the client may close or send more until then.
  Clock::time_point deadline_;
  // But for bytes that have come since, and time in which none were read.
  Clock::time_point body_deadline_;
  Clock::time_point body_paused_at_;  // kExchange: the handler reads no body
  // Null before a request's first byte. kExchange: while the body is streamed.
  std::unique_ptr<RequestReader> reader_;
  int64_t unread_bytes_ = 0;  // counted of its body
  // Received bytes of the next requests, from input_begin_ on.
  std::string input_;
  size_t input_begin_ = 0;
  bool lingers_ = false;  // counted by ServerShared
  // kLinger ends then, even if the client still sends.
  Clock::time_point linger_end_;

  // State of the exchange that runs.
  boost::asio::cancellation_signal cancel_;
  bool is_http_1_0_ = false;
  bool is_head_ = false;       // the answer has no body
  bool keep_alive_ = false;    // as far as the client goes
  bool waits_body_ = false;    // in ReadBody
  bool holds_place_ = false;   // Exchange::set_holds_place
  bool close_after_ = false;   // this answer ends the connection
  bool is_answered_ = false;   // whole; it may still be on its way
  bool sends_pieces_ = false;  // their head was sent
  bool was_checked_ = false;   // it ran at the last Check
  int sends_in_a_row_ = 0;     // without giving way to other connections

  std::unique_ptr<Logged> logged_;  // null if there is no log
};

}  // namespace espalier::http
