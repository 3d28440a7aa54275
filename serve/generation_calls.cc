#include "serve/generation_calls.h"

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "batcher/engine.h"
#include "batcher/scheduler/deadlines.h"
#include "espalier/split_text.h"
#include "openai/answer.h"
#include "openai/answer_writer.h"
#include "openai/error.h"
#include "openai/event_writer.h"
#include "openai/render.h"
#include "serve/prompt_runs.h"
#include "serve/ready_call.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

constexpr int64_t kBytesPerScore = sizeof(TokenScore);
constexpr size_t kAnswerPieceBytes = size_t{64} << 10;

int64_t NumScores(const std::vector<TokenLogProb>& log_probs) {
  int64_t count = 0;
  for (const TokenLogProb& place : log_probs) {
    count += 1 + std::ssize(place.best);
  }
  return count;
}

int64_t NumScores(const Result& result) {
  int64_t count = 0;
  if (result.prompt_logprobs) count += NumScores(*result.prompt_logprobs);
  for (const Hypothesis& hypothesis : result.hypotheses) {
    count += std::ssize(hypothesis.tokens) + NumScores(hypothesis.logprobs);
  }
  return count;
}

// The way out of a handler that has a connection cut off (http/exchange.h).
[[noreturn]] void ThrowCutOff() {
  throw boost::system::system_error(asio::error::connection_aborted);
}

// A whole answer while it is written, with all that it is written from: the
// thread that writes a piece of it may outlive the call.
struct WholeAnswer {
  WholeAnswer(std::shared_ptr<ReadyCall> of, openai::AnswerHead begin,
              std::vector<openai::PromptParts> of_prompts,
              std::vector<openai::PromptAnswer> all,
              std::shared_ptr<const Tokenizer> names)
      : ready(std::move(of)),
        head(std::move(begin)),
        parts(std::move(of_prompts)),
        answers(std::move(all)),
        tokenizer(std::move(names)),
        writer(ready->call, head, parts, answers, tokenizer.get()) {}

  const std::shared_ptr<ReadyCall> ready;
  const openai::AnswerHead head;
  const std::vector<openai::PromptParts> parts;
  const std::vector<openai::PromptAnswer> answers;
  const std::shared_ptr<const Tokenizer> tokenizer;
  openai::AnswerWriter writer;
};

// A streamed answer, likewise.
struct StreamedAnswer {
  StreamedAnswer(std::shared_ptr<ReadyCall> of, const openai::AnswerHead& head,
                 std::vector<openai::PromptParts> parts,
                 std::shared_ptr<const Tokenizer> names)
      : ready(std::move(of)),
        tokenizer(std::move(names)),
        writer(openai::MakeEventWriter(ready->call, head, std::move(parts),
                                       tokenizer.get())) {}

  const std::shared_ptr<ReadyCall> ready;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const std::unique_ptr<openai::EventWriter> writer;
};

// Likewise, what a call comes to. `body` is what `ready` was made of.
struct RenderedAnswer {
  RenderedAnswer(std::shared_ptr<ReadyCall> of, std::string_view body,
                 std::string_view model, std::vector<openai::PromptParts> all)
      : ready(std::move(of)),
        parts(std::move(all)),
        writer(ready->call, body, model, parts) {}

  const std::shared_ptr<ReadyCall> ready;
  const std::vector<openai::PromptParts> parts;
  openai::RenderWriter writer;
};

// The answer to a prompt while there are answers to some of its sentences.
class OpenAnswer {
 public:
  // `joiner` if there are several.
  explicit OpenAnswer(std::optional<SentenceJoiner> joiner)
      : joiner_(std::move(joiner)),
        sentences_(joiner_ ? joiner_->num_sentences() : 1),
        num_left_(sentences_.size()) {}

  // An event of a sentence as one of the whole.
  std::optional<StreamEvent> Add(size_t sentence, StreamEvent event) {
    return joiner_ ? joiner_->Add(sentence, std::move(event)) : event;
  }
  // The event that the end of a sentence adds to a stream.
  std::optional<StreamEvent> End(size_t sentence, const Generation& answer) {
    return joiner_ ? joiner_->End(sentence, answer) : std::nullopt;
  }
  // The whole, once all are there.
  std::optional<openai::PromptAnswer> Take(size_t sentence, Generation answer) {
    sentences_[sentence] = std::move(answer);
    if (--num_left_ > 0) return std::nullopt;
    Generation whole = joiner_ ? joiner_->Join(std::move(sentences_))
                               : std::move(sentences_[0]);
    std::vector<std::string> texts = std::move(whole.texts);
    return openai::PromptAnswer{std::move(whole), std::move(texts)};
  }

 private:
  std::optional<SentenceJoiner> joiner_;
  std::vector<Generation> sentences_;
  size_t num_left_;
};

// One for each prompt.
std::vector<OpenAnswer> OpenAnswersOf(
    const std::vector<PromptRequest>& requests) {
  std::vector<OpenAnswer> answers;
  std::vector<std::string> separators;
  for (const PromptRequest& request : requests) {
    const RequestPlace& place = request.place;
    separators.push_back(place.separator);
    if (place.sentence + 1 < place.num_sentences) continue;
    std::optional<SentenceJoiner> joiner;
    if (place.num_sentences > 1) {
      joiner.emplace(std::move(separators), request.parts.params);
    }
    answers.emplace_back(std::move(joiner));
    separators.clear();
  }
  return answers;
}

// Runs of a call's requests, which clients can abort from before they start.
struct AbortableRuns {
  AbortableRuns(const asio::any_io_executor& executor, RunningCalls* running,
                const Caller& caller, const std::string& answer_id)
      : runs(executor),
        entry(MakeAbortable(running, caller, answer_id, &runs)) {}

  PromptRuns runs;
  const RunningCalls::Entry entry;
};

// Does what CallAnswerer::Complete does, and may outlive the answerer.
asio::awaitable<absl::Status> CompleteRequests(std::shared_ptr<ReadyCall> ready,
                                               const Engine* engine,
                                               CompileQueue* queue,
                                               WorkerThread* worker,
                                               std::string owner) {
  const auto named = [ready](const PromptRequest& request,
                             const absl::Status& error) {
    return ErrorOfPrompt(request, ready->call,
                         request.engine.finish(error).status());
  };
  // All before it waits: a call that there is no room for is refused at once.
  for (PromptRequest& request : ready->prompts) {
    const absl::Status taken = engine->TakePlace(&*request.prepared);
    if (!taken.ok()) co_return named(request, taken);
  }
  for (PromptRequest& request : ready->prompts) {
    Engine::Prepared& prepared = *request.prepared;
    if (prepared.uncompiled() == nullptr) continue;
    const GenerationParams& params = prepared.params();
    // A variable: gcc 12 destroys temporaries of such an expression twice.
    CompileQueue::Work work = {.language = prepared.uncompiled(),
                               .tenant = owner.empty() ? params.tenant : owner,
                               .priority = params.priority,
                               .deadline = prepared.deadline()};
    absl::Status waited = co_await queue->Wait(std::move(work));
    if (absl::IsDeadlineExceeded(waited)) {
      waited = PassedDeadline(*params.deadline_ms,
                              "the request waited until its constraint was "
                              "compiled");
    }
    if (!waited.ok()) co_return named(request, waited);
  }
  WorkerThread::WorkFor<bool> complete = [ready, engine,
                                          named]() -> absl::StatusOr<bool> {
    for (PromptRequest& request : ready->prompts) {
      const absl::Status completed = engine->Complete(&*request.prepared);
      if (!completed.ok()) return named(request, completed);
    }
    return true;
  };
  const bool is_long =
      ready->num_body_bytes > static_cast<int64_t>(kMaxCallBytesOnIoThread);
  const absl::StatusOr<bool> completed =
      co_await worker->RunIf<bool>(is_long, std::move(complete));
  co_return completed.status();
}

class CallAnswerer {
 public:
  CallAnswerer(http::Exchange* exchange, ServedModel* model,
               const CallResources& resources, Caller caller)
      : exchange_(exchange),
        model_(model),
        worker_(resources.worker),
        compiling_(resources.compiling),
        memory_(resources.memory),
        running_(resources.running),
        caller_(std::move(caller)) {}
  ~CallAnswerer();

  asio::awaitable<void> Answer(openai::Api api, const openai::Limits& limits);
  asio::awaitable<void> Render(openai::Api api, const openai::Limits& limits);

 private:
  using Body = std::shared_ptr<const std::string>;
  using Ready = std::shared_ptr<ReadyCall>;
  struct Piece {
    std::string text;
    bool is_last = false;
  };

  // Fills ready_ and what it holds. False if the call was refused.
  asio::awaitable<bool> Begin(openai::Api api, Body body,
                              const openai::Limits& limits);
  // Errors: as HeldMemory::Take; as WorkerThread::Run.
  asio::awaitable<absl::StatusOr<Ready>> MakeReady(
      openai::Api api, Body body, const openai::Limits& limits);
  auto Refuse(const openai::Error& error) {
    return exchange_->Respond(ErrorResponse(error, caller_.headers));
  }
  // Returns once nothing is left of the requests but to run them.
  // Errors: of their constraints; of the queue that these wait in; as
  // runs.Next.
  asio::awaitable<absl::Status> Complete(PromptRuns* runs);
  asio::awaitable<absl::Status> AnswerWhole(
      std::unique_ptr<AbortableRuns> runs);
  asio::awaitable<absl::Status> Write(
      std::vector<openai::PromptAnswer> answers);
  asio::awaitable<absl::Status> WriteRendered(Body body);
  // Sends the pieces that `next` makes; of a single one the length is in front,
  // as clients like it. Errors: before the first piece was sent.
  asio::awaitable<absl::Status> SendPieces(bool is_much,
                                           WorkerThread::WorkFor<Piece> next);
  asio::awaitable<absl::Status> AnswerInEvents(
      std::unique_ptr<AbortableRuns> runs);
  // Sends events, of which one may have megabytes, a piece at a time. `events`
  // must live until it completes. False as Exchange::SendEvents.
  asio::awaitable<bool> SendEvents(std::string_view events);
  asio::awaitable<absl::Status> RunAll(
      std::unique_ptr<AbortableRuns> runs,
      std::vector<openai::PromptAnswer>* answers);
  // The answer to a request.
  asio::awaitable<absl::StatusOr<Generation>> Finish(
      int request, absl::StatusOr<Result> result);
  void SetRequestId(const std::string& id);
  openai::Call& call() { return ready_->call; }
  std::vector<PromptRequest>& requests() { return ready_->prompts; }

  http::Exchange* const exchange_;
  ServedModel* const model_;
  WorkerThread* const worker_;
  CompileQueue* const compiling_;
  HeldMemory* const memory_;
  RunningCalls* const running_;
  Caller caller_;
  HeldMemory::Share of_body_;
  HeldMemory::Share of_reports_;
  Ready ready_;
  // A WholeAnswer or a StreamedAnswer.
  std::shared_ptr<const void> answer_;
  // Approximate memory, if it takes long to free; else 0.
  int64_t num_bytes_ = 0;
  openai::AnswerHead head_;
  bool is_answered_ = false;  // wholly, and not by an error
};

CallAnswerer::~CallAnswerer() {
  if (num_bytes_ == 0) return;
  // In this order: free memory is returned once the second is destroyed.
  worker_->Destroy(std::move(answer_), 0);
  worker_->Destroy(std::move(ready_), num_bytes_);
}

asio::awaitable<bool> CallAnswerer::Begin(openai::Api api, Body body,
                                          const openai::Limits& limits) {
  absl::StatusOr<Ready> ready =
      co_await MakeReady(api, std::move(body), limits);
  if (!ready.ok()) {
    co_await Refuse(openai::ErrorOf(ready.status()));
    co_return false;
  }
  ready_ = *std::move(ready);
  if (!call().request_id.empty()) SetRequestId(call().request_id);
  if (ready_->refusal.has_value()) {
    co_await Refuse(*ready_->refusal);
    co_return false;
  }
  absl::StatusOr<HeldMemory::Share> of_reports =
      memory_->Take(PromptReportBytes(requests()));
  if (!of_reports.ok()) {
    co_await Refuse(openai::ErrorOf(of_reports.status()));
    co_return false;
  }
  of_reports_ = *std::move(of_reports);
  co_return true;
}

asio::awaitable<void> CallAnswerer::Answer(openai::Api api,
                                           const openai::Limits& limits) {
  auto body =
      std::make_shared<const std::string>(exchange_->TakeRequest().body);
  if (!co_await Begin(api, std::move(body), limits)) co_return;
  head_ = {openai::AnswerId(api, caller_.request_id),
           absl::ToUnixSeconds(absl::Now()), model_->name};
  MeteredCall metered(&model_->meter, NumRows(requests()));
  auto runs = std::make_unique<AbortableRuns>(exchange_->executor(), running_,
                                              caller_, head_.id);
  absl::Status answered = co_await Complete(&runs->runs);
  if (answered.ok() && call().stream) {
    answered = co_await AnswerInEvents(std::move(runs));
  } else if (answered.ok()) {
    answered = co_await AnswerWhole(std::move(runs));
  }
  if (is_answered_) metered.SetAnswered();
  if (!answered.ok()) {
    co_await Refuse(openai::ErrorOf(answered, &call()));
  }
}

asio::awaitable<void> CallAnswerer::Render(openai::Api api,
                                           const openai::Limits& limits) {
  const auto body =
      std::make_shared<const std::string>(exchange_->TakeRequest().body);
  if (!co_await Begin(api, body, limits)) co_return;
  AbortableRuns runs(exchange_->executor(), running_, caller_,
                     openai::AnswerId(api, caller_.request_id));
  absl::Status answered = co_await Complete(&runs.runs);
  if (answered.ok()) answered = co_await WriteRendered(body);
  if (!answered.ok()) {
    co_await Refuse(openai::ErrorOf(answered, &call()));
  }
}

asio::awaitable<absl::StatusOr<CallAnswerer::Ready>> CallAnswerer::MakeReady(
    openai::Api api, Body body, const openai::Limits& limits) {
  const bool is_long = body->size() > kMaxCallBytesOnIoThread;
  if (is_long) {
    absl::StatusOr<HeldMemory::Share> of_body =
        memory_->Take(kHeldPerBodyByte * std::ssize(*body));
    if (!of_body.ok()) co_return of_body.status();
    of_body_ = *std::move(of_body);
    num_bytes_ += kHeldPerBodyByte * std::ssize(*body);
  }
  WorkerThread::WorkFor<Ready> work = [api, body = std::move(body), &limits,
                                       model = model_, caller = caller_] {
    return std::make_shared<ReadyCall>(
        MakeReadyCall(api, *body, limits, *model, caller));
  };
  co_return co_await worker_->RunIf<Ready>(is_long, std::move(work));
}

// A call whose requests are complete does not wait at all.
asio::awaitable<absl::Status> CallAnswerer::Complete(PromptRuns* runs) {
  const bool is_complete =
      std::ranges::all_of(requests(), [](const PromptRequest& request) {
        return request.prepared->uncompiled() == nullptr;
      });
  if (is_complete) co_return absl::OkStatus();
  asio::awaitable<absl::Status> work =
      CompleteRequests(ready_, &model_->generator.engine(), compiling_, worker_,
                       OwnerOf(caller_));
  co_return co_await runs->Await(std::move(work));
}

void CallAnswerer::SetRequestId(const std::string& id) {
  TakeRequestId(id, &caller_);
  exchange_->set_note(LogNote(caller_));
}

asio::awaitable<absl::StatusOr<Generation>> CallAnswerer::Finish(
    int request, absl::StatusOr<Result> result) {
  if (request < 0) co_return result.status();
  const int64_t num_scores = result.ok() ? NumScores(*result) : 0;
  const bool is_much = num_scores > kMaxScoresOnIoThread;
  if (is_much) num_bytes_ += num_scores * kBytesPerScore;
  WorkerThread::WorkFor<Generation> work =
      [ready = ready_, request,
       result = std::move(result)]() mutable -> absl::StatusOr<Generation> {
    const PromptRequest& finished = ready->prompts[request];
    absl::StatusOr<Generation> generation =
        finished.engine.finish(std::move(result));
    if (generation.ok()) return generation;
    return ErrorOfPrompt(finished, ready->call, generation.status());
  };
  co_return co_await worker_->RunIf<Generation>(is_much, std::move(work));
}

// Errors: that of the first request that has one.
asio::awaitable<absl::Status> CallAnswerer::RunAll(
    std::unique_ptr<AbortableRuns> abortable,
    std::vector<openai::PromptAnswer>* answers) {
  Engine& engine = model_->generator.engine();
  std::vector<OpenAnswer> open = OpenAnswersOf(requests());
  answers->resize(open.size());
  PromptRuns& runs = abortable->runs;
  for (size_t i = 0; i < requests().size(); ++i) {
    runs.Start(static_cast<int>(i), engine, *std::move(requests()[i].prepared));
  }
  for (size_t i = 0; i < requests().size(); ++i) {
    std::optional<RunEvent> run_event = co_await runs.Next();
    absl::StatusOr<Generation> generation = co_await Finish(
        run_event->request,
        std::get<absl::StatusOr<Result>>(std::move(run_event->what)));
    if (!generation.ok()) co_return generation.status();
    const RequestPlace& place = requests()[run_event->request].place;
    std::optional<openai::PromptAnswer> answer =
        open[place.prompt].Take(place.sentence, *std::move(generation));
    if (answer) (*answers)[place.prompt] = *std::move(answer);
  }
  co_return absl::OkStatus();
}

asio::awaitable<absl::Status> CallAnswerer::AnswerWhole(
    std::unique_ptr<AbortableRuns> runs) {
  std::vector<openai::PromptAnswer> answers;
  const absl::Status run = co_await RunAll(std::move(runs), &answers);
  if (!run.ok()) co_return run;
  co_return co_await Write(std::move(answers));
}

asio::awaitable<absl::Status> CallAnswerer::Write(
    std::vector<openai::PromptAnswer> answers) {
  int64_t num_scores = 0;
  for (const openai::PromptAnswer& answer : answers) {
    num_scores += NumScores(answer.result);
  }
  const auto whole = std::make_shared<WholeAnswer>(
      ready_, head_, TakeParts(&requests()), std::move(answers),
      model_->generator.tokenizer());
  answer_ = whole;
  WorkerThread::WorkFor<Piece> next = [whole]() -> absl::StatusOr<Piece> {
    Piece piece;
    piece.is_last = !whole->writer.Append(kAnswerPieceBytes, &piece.text);
    return piece;
  };
  co_return co_await SendPieces(num_scores > kMaxScoresOnIoThread,
                                std::move(next));
}

asio::awaitable<absl::Status> CallAnswerer::WriteRendered(Body body) {
  const bool is_long = body->size() > kMaxCallBytesOnIoThread;
  using Rendered = std::shared_ptr<RenderedAnswer>;
  std::vector<openai::PromptParts> parts;  // one per sentence
  for (PromptRequest& request : requests()) {
    parts.push_back(std::move(request.parts));
  }
  WorkerThread::WorkFor<Rendered> work =
      [ready = ready_, body = std::move(body), &name = model_->name,
       parts = std::move(parts)]() mutable -> absl::StatusOr<Rendered> {
    auto rendered = std::make_shared<RenderedAnswer>(std::move(ready), *body,
                                                     name, std::move(parts));
    RETURN_IF_ERROR(rendered->writer.CheckSize());
    return rendered;
  };
  absl::StatusOr<Rendered> made =
      co_await worker_->RunIf<Rendered>(is_long, std::move(work));
  if (!made.ok()) co_return made.status();
  const Rendered rendered = *std::move(made);
  answer_ = rendered;
  WorkerThread::WorkFor<Piece> next = [rendered]() -> absl::StatusOr<Piece> {
    Piece piece;
    piece.is_last = !rendered->writer.Append(kAnswerPieceBytes, &piece.text);
    return piece;
  };
  const auto num_bytes = static_cast<size_t>(rendered->writer.max_bytes());
  co_return co_await SendPieces(num_bytes > kAnswerPieceBytes, std::move(next));
}

asio::awaitable<absl::Status> CallAnswerer::SendPieces(
    bool is_much, WorkerThread::WorkFor<Piece> next) {
  bool has_begun = false;
  for (bool is_over = false; !is_over;) {
    absl::StatusOr<Piece> piece = co_await worker_->RunIf<Piece>(is_much, next);
    if (!piece.ok() && !has_begun) co_return piece.status();
    // A part of it was sent: the client must see that the rest is missing.
    if (!piece.ok()) ThrowCutOff();
    is_over = piece->is_last;
    http::Response response;
    response.headers = caller_.headers;
    if (is_over && !has_begun) {
      response.body = std::move(piece->text);
      is_answered_ = co_await exchange_->Respond(std::move(response));
      co_return absl::OkStatus();
    }
    if (!std::exchange(has_begun, true) &&
        !co_await exchange_->BeginStream(std::move(response))) {
      co_return absl::OkStatus();
    }
    if (!co_await exchange_->SendPiece(piece->text)) {
      co_return absl::OkStatus();
    }
  }
  is_answered_ = true;
  co_return absl::OkStatus();
}

// Errors: before the first event.
asio::awaitable<absl::Status> CallAnswerer::AnswerInEvents(
    std::unique_ptr<AbortableRuns> abortable) {
  Engine& engine = model_->generator.engine();
  std::vector<std::vector<ResultStream>> streams;  // one per prompt
  for (PromptRequest& request : requests()) {
    absl::StatusOr<ResultStream> stream = co_await engine.Stream(
        *std::move(request.prepared), {.beams = call().stream_beams});
    if (!stream.ok()) {
      co_return ErrorOfPrompt(request, call(),
                              request.engine.finish(stream.status()).status());
    }
    if (request.place.sentence == 0) streams.emplace_back();
    streams.back().push_back(*std::move(stream));
  }
  std::vector<OpenAnswer> open = OpenAnswersOf(requests());
  const auto streamed = std::make_shared<StreamedAnswer>(
      ready_, head_, TakeParts(&requests()), model_->generator.tokenizer());
  answer_ = streamed;
  openai::EventWriter& writer = *streamed->writer;
  PromptRuns& runs = abortable->runs;
  int first = 0;
  for (std::vector<ResultStream>& of_prompt : streams) {
    const auto num_requests = static_cast<int>(of_prompt.size());
    runs.Start(first, std::move(of_prompt));
    first += num_requests;
  }
  runs.StartPings();
  exchange_->set_holds_place(true);
  if (!co_await exchange_->BeginEvents(caller_.headers)) {
    co_return absl::OkStatus();
  }
  std::string events = writer.Begin();
  for (size_t num_running = open.size(); num_running > 0;) {
    if (!co_await SendEvents(events)) {
      co_return absl::OkStatus();
    }
    events.clear();
    std::optional<RunEvent> run_event = co_await runs.Next();
    if (!run_event.has_value()) {
      events = openai::kPing;
      continue;
    }
    const RequestPlace place = run_event->request < 0
                                   ? RequestPlace()
                                   : requests()[run_event->request].place;
    const auto prompt = static_cast<int>(place.prompt);
    OpenAnswer& of_prompt = open[place.prompt];
    if (auto* event = std::get_if<StreamEvent>(&run_event->what)) {
      const std::optional<StreamEvent> added =
          of_prompt.Add(place.sentence, std::move(*event));
      if (added) events = writer.Add(prompt, *added);
      continue;
    }
    absl::StatusOr<Generation> generation = co_await Finish(
        run_event->request,
        std::get<absl::StatusOr<Result>>(std::move(run_event->what)));
    absl::StatusOr<std::string> last;
    if (generation.ok()) {
      const std::optional<StreamEvent> rest =
          of_prompt.End(place.sentence, *generation);
      if (rest) events = writer.Add(prompt, *rest);
      std::optional<openai::PromptAnswer> answer =
          of_prompt.Take(place.sentence, *std::move(generation));
      if (!answer) continue;
      const bool is_much = NumScores(answer->result) > kMaxScoresOnIoThread;
      WorkerThread::WorkFor<std::string> work =
          [streamed, prompt,
           answer = *std::move(answer)]() -> absl::StatusOr<std::string> {
        return streamed->writer->Finish(prompt, answer);
      };
      last = co_await worker_->RunIf<std::string>(is_much, std::move(work));
    } else {
      last = generation.status();
    }
    if (!last.ok()) {
      events = writer.Fail(openai::ErrorOf(last.status(), &call()));
      co_await SendEvents(events);
      co_return absl::OkStatus();
    }
    events = *std::move(last);
    --num_running;
  }
  exchange_->set_holds_place(false);
  events += writer.End();
  is_answered_ = co_await SendEvents(events);
  co_return absl::OkStatus();
}

asio::awaitable<bool> CallAnswerer::SendEvents(std::string_view events) {
  while (!events.empty()) {
    const std::string_view piece = events.substr(0, kAnswerPieceBytes);
    if (!co_await exchange_->SendEvents(piece)) co_return false;
    events.remove_prefix(piece.size());
  }
  co_return true;
}

}  // namespace

RunningCalls::Entry MakeAbortable(RunningCalls* running, const Caller& caller,
                                  const std::string& answer_id,
                                  PromptRuns* runs) {
  std::vector<std::string> ids = {TraceId(caller, caller.request_id)};
  if (answer_id != caller.request_id) {
    ids.push_back(TraceId(caller, answer_id));
  }
  return running->Add(std::move(ids), [interrupt = runs->Interrupter()] {
    interrupt(absl::AbortedError("the request was aborted (/abort_requests)"));
  });
}

http::Response ErrorResponse(const openai::Error& error,
                             std::vector<http::Header> headers) {
  http::Response response;
  response.status = error.http_status;
  response.headers = std::move(headers);
  if (error.retry_after_s > 0) {
    response.headers.push_back(
        {"Retry-After", std::to_string(error.retry_after_s)});
  }
  if (error.is_final) response.headers.push_back({"x-should-retry", "false"});
  response.body = openai::WriteError(error);
  return response;
}

asio::awaitable<void> AnswerCall(http::Exchange& exchange, openai::Api api,
                                 ServedModel& model,
                                 const openai::Limits& limits,
                                 CallResources resources, Caller caller) {
  CallAnswerer answerer(&exchange, &model, resources, std::move(caller));
  co_await answerer.Answer(api, limits);
}

asio::awaitable<void> RenderCall(http::Exchange& exchange, openai::Api api,
                                 ServedModel& model,
                                 const openai::Limits& limits,
                                 CallResources resources, Caller caller) {
  CallAnswerer answerer(&exchange, &model, resources, std::move(caller));
  co_await answerer.Render(api, limits);
}

}  // namespace espalier::serve
