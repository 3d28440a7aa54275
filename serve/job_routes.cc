// The routes of files and batches, and how the calls of a batch are made.
#include <boost/asio/this_coro.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/status.h"
#include "serve/generation_calls.h"
#include "serve/server_core.h"
#include "serve/stored_peer.h"

namespace espalier::serve {

namespace asio = boost::asio;

std::string ServerCore::TenantOf(const Caller& caller) const {
  // As other calls do: by their keys, or without keys by their addresses.
  return caller.key >= 0 ? options_.api_keys.OwnerOf(caller.key)
                         : caller.address;
}

JobCall ServerCore::JobCallOf(Call& call) const {
  http::Request request = call.exchange.TakeRequest();
  return {.owner = options_.api_keys.OwnerOf(call.caller.key),
          .tenant = TenantOf(call.caller),
          .id = std::move(call.id),
          .query = std::move(request.query),
          .body = std::move(request.body)};
}

ServerCore::Work ServerCore::RespondJob(Call& call, JobCalls::Answer answer) {
  JobCall job = JobCallOf(call);
  absl::StatusOr<std::string> body = co_await jobs_->Do(answer, std::move(job));
  co_await RespondOr(call, std::move(body));
}

ServerCore::Work ServerCore::AddFile(Call& call) {
  absl::StatusOr<std::string> body =
      co_await jobs_->AddFile(options_.api_keys.OwnerOf(call.caller.key),
                              TenantOf(call.caller), call.exchange);
  co_await RespondOr(call, std::move(body));
}
ServerCore::Work ServerCore::ListFiles(Call& call) {
  return RespondJob(call, &JobCalls::ListFiles);
}
ServerCore::Work ServerCore::File(Call& call) {
  return RespondJob(call, &JobCalls::File);
}
ServerCore::Work ServerCore::RemoveFile(Call& call) {
  return RespondJob(call, &JobCalls::RemoveFile);
}
ServerCore::Work ServerCore::CreateBatch(Call& call) {
  return RespondJob(call, &JobCalls::CreateBatch);
}
ServerCore::Work ServerCore::ListBatches(Call& call) {
  return RespondJob(call, &JobCalls::ListBatches);
}
ServerCore::Work ServerCore::Batch(Call& call) {
  return RespondJob(call, &JobCalls::Batch);
}
ServerCore::Work ServerCore::CancelBatch(Call& call) {
  return RespondJob(call, &JobCalls::CancelBatch);
}

ServerCore::Work ServerCore::FileContent(Call& call) {
  const bool is_head = call.exchange.request().method == "HEAD";
  JobCall job = JobCallOf(call);
  const absl::StatusOr<JobCalls::Content> content =
      co_await jobs_->OpenFile(std::move(job));
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
        co_await jobs_->ReadPiece(*content);
    // Half of a file is cut off, not ended.
    if (!piece.ok()) throw std::runtime_error(Message(piece.status()));
    if (piece->empty()) co_return;
    if (!co_await call.exchange.SendPiece(*piece)) co_return;
  }
}

asio::awaitable<openai::BatchOutcome> ServerCore::RunStored(
    jobs::RunningCall call) {
  Caller caller;
  caller.request_id = NewRequestId();
  caller.is_stored = true;
  openai::BatchOutcome outcome = {.request_id = caller.request_id};
  const std::optional<int> key = options_.api_keys.FindOwner(call.owner);
  if (!key.has_value()) {
    outcome.http_status = 401;
    outcome.body = openai::WriteError(openai::MakeHttpError(
        401, "the API key of the batch is none of the server's any more"));
    co_return outcome;
  }
  caller.key = *key;
  if (caller.key < 0) caller.address = call.tenant;
  StoredPeer peer(co_await asio::this_coro::executor);
  http::Request request;
  request.body = std::move(call.body);
  http::Exchange exchange(&peer, std::move(request));
  co_await AnswerCall(exchange, call.api, *model_, options_.requests,
                      {&calls_, &memory_, &running_calls_, &compiling_},
                      std::move(caller));
  http::Response response = peer.TakeResponse();
  outcome.http_status = response.status;
  outcome.body = std::move(response.body);
  co_return outcome;
}

}  // namespace espalier::serve
