#include "serve/job_answers.h"

#include <boost/asio/this_coro.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/status.h"
#include "serve/generation_calls.h"
#include "serve/stored_peer.h"

namespace espalier::serve::routes {
namespace {

// Returns the tenant whose share of the stored files and batches a call uses,
// as other calls do: its key's owner, or without keys its address.
std::string TenantOf(const ServerState& server, const Caller& caller) {
  return caller.key >= 0 ? server.options.api_keys.OwnerOf(caller.key)
                         : caller.address;
}

JobCall JobCallOf(const ServerState& server, RouteCall& call) {
  http::Request request = call.exchange.TakeRequest();
  return {.owner = server.options.api_keys.OwnerOf(call.caller.key),
          .tenant = TenantOf(server, call.caller),
          .id = std::move(call.id),
          .query = std::move(request.query),
          .body = std::move(request.body)};
}

RouteWork RespondJob(ServerState& server, RouteCall& call,
                     JobCalls::Answer answer) {
  JobCall job = JobCallOf(server, call);
  absl::StatusOr<std::string> body =
      co_await server.jobs->Do(answer, std::move(job));
  co_await RespondOr(call, std::move(body));
}

}  // namespace

RouteWork AddFile(ServerState& server, RouteCall& call) {
  absl::StatusOr<std::string> body = co_await server.jobs->AddFile(
      server.options.api_keys.OwnerOf(call.caller.key),
      TenantOf(server, call.caller), call.exchange);
  co_await RespondOr(call, std::move(body));
}
RouteWork ListFiles(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::ListFiles);
}
RouteWork File(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::File);
}
RouteWork RemoveFile(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::RemoveFile);
}
RouteWork CreateBatch(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::CreateBatch);
}
RouteWork ListBatches(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::ListBatches);
}
RouteWork Batch(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::Batch);
}
RouteWork CancelBatch(ServerState& server, RouteCall& call) {
  return RespondJob(server, call, &JobCalls::CancelBatch);
}

RouteWork FileContent(ServerState& server, RouteCall& call) {
  const bool is_head = call.exchange.request().method == "HEAD";
  JobCall job = JobCallOf(server, call);
  const absl::StatusOr<JobCalls::Content> content =
      co_await server.jobs->OpenFile(std::move(job));
  if (!content.ok()) {
    co_await Refuse(call, openai::ErrorOf(content.status()));
    co_return;
  }
  http::Response head;
  head.headers = std::move(call.caller.headers);
  head.headers.push_back({"X-Content-Type-Options", "nosniff"});
  head.content_type = "application/octet-stream";
  if (!co_await call.exchange.BeginStream(std::move(head))) co_return;
  // Pieces that are not sent never wait: other connections would.
  if (is_head) co_return;
  while (true) {
    const absl::StatusOr<std::string> piece =
        co_await server.jobs->ReadPiece(*content);
    // Half of a file is cut off, not ended.
    if (!piece.ok()) throw std::runtime_error(Message(piece.status()));
    if (piece->empty()) co_return;
    if (!co_await call.exchange.SendPiece(*piece)) co_return;
  }
}

}  // namespace espalier::serve::routes

namespace espalier::serve {

boost::asio::awaitable<openai::BatchOutcome> RunStored(ServerState& server,
                                                       jobs::RunningCall call) {
  Caller caller;
  caller.request_id = NewRequestId();
  caller.is_stored = true;
  openai::BatchOutcome outcome = {.request_id = caller.request_id};
  const std::optional<int> key = server.options.api_keys.FindOwner(call.owner);
  if (!key.has_value()) {
    outcome.http_status = 401;
    outcome.body = openai::WriteError(openai::MakeHttpError(
        401, "the API key of the batch is none of the server's any more"));
    co_return outcome;
  }
  caller.key = *key;
  if (caller.key < 0) caller.address = call.tenant;
  StoredPeer peer(co_await boost::asio::this_coro::executor);
  http::Request request;
  request.body = std::move(call.body);
  http::Exchange exchange(&peer, std::move(request));
  co_await AnswerCall(exchange, call.api, *server.model,
                      server.options.requests, server.resources(),
                      std::move(caller));
  http::Response response = peer.TakeResponse();
  outcome.http_status = response.status;
  outcome.body = std::move(response.body);
  co_return outcome;
}

}  // namespace espalier::serve
