#include "examples/cli/runtime/text_answers.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "base/status.h"
#include "espalier/run_prepared.h"
#include "examples/cli/runtime/runtime.h"
#include "request/generation_params.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// Sentences of a text that run or are read at a time.
constexpr size_t kMostSentences = 256;

absl::Status OfPart(const absl::Status& error, size_t part, size_t num_parts) {
  if (num_parts == 1) return error;
  return OfSentence(error, part, num_parts);
}

// The request of a part.
absl::StatusOr<EngineRequest> OpenPart(const Runtime& runtime, size_t part,
                                       TextParts* parts) {
  RequestBody body;
  if (parts->split) {
    body = parts->body;
    body.prompt = std::move(parts->split->sentences[part]);
  } else {
    body = std::move(parts->body);
  }
  absl::StatusOr<EngineRequest> open = runtime.Open(std::move(body));
  if (!open.ok()) return OfPart(open.status(), part, parts->size());
  Request& request = open->request;
  if (!parts->split || !DrawsAtRandom(request.params)) return open;
  if (parts->seed) request.params.seed = parts->seed;
  ShareSeed({&request});
  parts->seed = request.params.seed;
  return open;
}

// Parts that run side by side. What runs them owns it, too.
class PartRuns : public std::enable_shared_from_this<PartRuns> {
 public:
  PartRuns(Runtime* runtime, TextParts parts,
           const asio::any_io_executor& executor)
      : runtime_(runtime),
        parts_(std::move(parts)),
        answers_(parts_.size()),
        ended_(executor, 1) {}

  // Errors: that of the first part that has one.
  asio::awaitable<absl::StatusOr<Generation>> Run();

 private:
  using Channel = asio::experimental::channel<void(boost::system::error_code)>;

  // Runs one part after the other until none is left, or one has failed.
  asio::awaitable<void> RunSome();
  asio::awaitable<absl::StatusOr<Generation>> RunPart(size_t part);
  void Fail(size_t part, absl::Status why);

  Runtime* const runtime_;
  TextParts parts_;
  std::vector<Generation> answers_;
  std::optional<SentenceJoiner> joiner_;
  size_t next_ = 0;
  size_t num_running_ = 0;  // coroutines
  size_t failed_ = 0;       // the part
  absl::Status status_;
  Channel ended_;
};

asio::awaitable<absl::StatusOr<Generation>> PartRuns::Run() {
  // GCC 12 destroys temporaries of an awaited expression twice.
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  num_running_ = std::min(parts_.size(), kMostSentences);
  for (size_t i = num_running_; i > 0; --i) {
    asio::co_spawn(executor, RunSome(),
                   [self = shared_from_this()](std::exception_ptr error) {
                     if (error != nullptr) {
                       self->Fail(0, ResourceExhausted("not enough memory"));
                     }
                     --self->num_running_;
                     self->ended_.try_send(boost::system::error_code());
                   });
  }
  while (num_running_ > 0) {
    co_await ended_.async_receive(asio::use_awaitable);
  }
  if (!status_.ok()) co_return status_;
  co_return joiner_->Join(std::move(answers_));
}

asio::awaitable<void> PartRuns::RunSome() {
  while (next_ < parts_.size() && status_.ok()) {
    const size_t part = next_++;
    absl::StatusOr<Generation> answer = co_await RunPart(part);
    if (answer.ok()) {
      answers_[part] = *std::move(answer);
    } else {
      Fail(part, answer.status());
    }
  }
}

asio::awaitable<absl::StatusOr<Generation>> PartRuns::RunPart(size_t part) {
  absl::StatusOr<EngineRequest> open = OpenPart(*runtime_, part, &parts_);
  if (!open.ok()) co_return open.status();
  if (!joiner_) {
    joiner_.emplace(parts_.split->separators, open->request.params);
  }
  absl::StatusOr<Result> result =
      co_await RunPrepared(runtime_->engine(), std::move(open->request));
  absl::StatusOr<Generation> answer = open->finish(std::move(result));
  if (!answer.ok()) co_return OfPart(answer.status(), part, parts_.size());
  co_return answer;
}

void PartRuns::Fail(size_t part, absl::Status why) {
  if (!status_.ok() && failed_ <= part) return;
  failed_ = part;
  status_ = std::move(why);
}

}  // namespace

asio::awaitable<absl::StatusOr<Generation>> AnswerTexts(Runtime* runtime,
                                                        TextParts parts) {
  if (parts.split) {
    const asio::any_io_executor executor = co_await asio::this_coro::executor;
    const auto runs =
        std::make_shared<PartRuns>(runtime, std::move(parts), executor);
    co_return co_await runs->Run();
  }
  absl::StatusOr<EngineRequest> open = runtime->Open(std::move(parts.body));
  if (!open.ok()) co_return open.status();
  absl::StatusOr<Result> result =
      co_await RunPrepared(runtime->engine(), std::move(open->request));
  if (result.ok()) runtime->NoteWholeText(parts.whole_for);
  co_return open->finish(std::move(result));
}

asio::awaitable<absl::StatusOr<AnswerStream>> AnswerStream::Open(
    Runtime* runtime, TextParts parts) {
  AnswerStream stream(runtime, std::move(parts));
  const absl::Status opened = co_await stream.OpenSome();
  if (!opened.ok()) co_return opened;
  runtime->NoteWholeText(stream.parts_.whole_for);
  co_return stream;
}

asio::awaitable<absl::Status> AnswerStream::OpenSome() {
  while (num_opened_ < parts_.size() && open_.size() < kMostSentences) {
    const size_t part = num_opened_++;
    absl::StatusOr<EngineRequest> open = OpenPart(*runtime_, part, &parts_);
    if (!open.ok()) co_return open.status();
    if (part == 0) {
      const GenerationParams& params = open->request.params;
      num_samples_ = IsBeamSearch(params) ? 0 : NumSequences(params);
      if (parts_.split) joiner_.emplace(parts_.split->separators, params);
    }
    absl::StatusOr<ResultStream> stream =
        co_await StreamPrepared(runtime_->engine(), std::move(open->request));
    if (!stream.ok()) {
      const absl::Status error = open->finish(stream.status()).status();
      co_return OfPart(error, part, parts_.size());
    }
    open_.push_back({*std::move(stream), std::move(open->finish)});
  }
  co_return absl::OkStatus();
}

asio::awaitable<absl::StatusOr<std::optional<StreamEvent>>>
AnswerStream::Next() {
  while (!open_.empty()) {
    const size_t part = answers_.size();
    absl::StatusOr<std::optional<StreamEvent>> event =
        co_await open_.front().stream.Next();
    if (event.ok() && !std::holds_alternative<Result>(**event)) {
      if (joiner_) *event = joiner_->Add(part, **std::move(event));
      if (event->has_value()) co_return event;
      continue;
    }
    absl::StatusOr<Result> result =
        event.ok()
            ? absl::StatusOr<Result>(std::get<Result>(**std::move(event)))
            : event.status();
    absl::StatusOr<Generation> answer = open_.front().finish(std::move(result));
    if (!answer.ok()) co_return OfPart(answer.status(), part, parts_.size());
    std::optional<StreamEvent> rest;
    if (joiner_) rest = joiner_->End(part, *answer);
    answers_.push_back(*std::move(answer));
    open_.pop_front();
    const absl::Status opened = co_await OpenSome();
    if (!opened.ok()) co_return opened;
    if (rest) co_return rest;
  }
  co_return std::nullopt;
}

Generation AnswerStream::TakeAnswer() {
  if (!joiner_) return std::move(answers_.front());
  return joiner_->Join(std::move(answers_));
}

}  // namespace espalier::cli
