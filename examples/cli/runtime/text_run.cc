#include "examples/cli/runtime/text_run.h"

#include <boost/asio/co_spawn.hpp>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "examples/cli/output/cut_short.h"
#include "examples/cli/output/printing.h"
#include "examples/cli/output/progress.h"
#include "examples/cli/output/progress_ticks.h"
#include "examples/cli/runtime/interrupt.h"
#include "examples/cli/runtime/stream_output.h"
#include "examples/cli/runtime/wakeup.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// Texts that are read and not printed yet.
constexpr size_t kMaxWaitingTexts = 4096;

using Answer = absl::StatusOr<Generation>;

asio::awaitable<Answer> RunText(const TextRun& run, std::string text) {
  if (absl::Status bad = CheckText(text); !bad.ok()) co_return bad;
  // GCC 12 destroys a braced temporary in an awaited call twice.
  RequestBody body = {std::move(text), {}, run.params, "", run.given};
  body.split_sentences = run.split_sentences;
  co_return co_await run.runtime.Run(std::move(body));
}

// All of it runs on the runtime's one thread. Texts that run own it, too.
class TextRunner : public std::enable_shared_from_this<TextRunner> {
 public:
  explicit TextRunner(const TextRun& run)
      : run_(run),
        printer_(&run.output),
        progress_(run.source.num_known()),
        ended_(run.runtime.context()) {}

  asio::awaitable<RunOutcome> Run();

 private:
  struct Open {
    std::string text;
    bool has_ended = false;
    absl::Status status = {};
    std::string hypotheses = {};  // to be printed
    size_t num_bytes() const { return text.size() + hypotheses.size(); }
  };

  void Start(std::string text);
  void End(int64_t index, const Answer& answer);
  bool IsFull() const;
  void PrintReady();
  void Print(const Open& open);

  const TextRun run_;
  TextPrinter printer_;
  Progress progress_;
  Wakeup ended_;
  std::deque<Open> open_;  // in order; the first is the num_printed_-th of all
  size_t open_bytes_ = 0;
  int64_t num_read_ = 0;
  int64_t num_printed_ = 0;
  bool gave_up_ = false;
};

asio::awaitable<RunOutcome> TextRunner::Run() {
  absl::Status read;
  while (!run_.source.stopped()) {
    absl::StatusOr<std::vector<std::string>> texts =
        co_await run_.source.Read();
    read = texts.status();
    if (!texts.ok() || texts->empty()) break;
    for (std::string& text : *texts) {
      if (run_.source.stopped()) break;
      Start(std::move(text));
      while (IsFull()) co_await ended_.Wait();
    }
  }
  progress_.SetTotal(static_cast<int>(num_read_));
  const ProgressTicks ticks(run_.runtime.context(), &progress_);
  while (!open_.empty()) co_await ended_.Wait();
  progress_.Erase();
  co_return RunOutcome{printer_.Finish(num_read_), read};
}

void TextRunner::Start(std::string text) {
  const int64_t index = num_read_++;
  open_bytes_ += text.size();
  open_.push_back({text});
  asio::co_spawn(run_.runtime.context(), RunText(run_, std::move(text)),
                 [self = shared_from_this(), index](std::exception_ptr error,
                                                    Answer answer) {
                   if (error != nullptr) {
                     answer = ResourceExhausted("not enough memory");
                   }
                   self->End(index, answer);
                 });
}

bool TextRunner::IsFull() const {
  return open_.size() >= kMaxWaitingTexts ||
         (open_bytes_ >= kMaxWaitingBytes && !open_.empty());
}

void TextRunner::End(int64_t index, const Answer& answer) {
  Open& open = open_[index - num_printed_];
  open.has_ended = true;
  open.status = run_.names.InOptions(answer.status());
  if (open.status.ok()) {
    open.hypotheses = FormatHypotheses(*answer, *run_.runtime.tokenizer());
  }
  open_bytes_ += open.hypotheses.size();
  PrintReady();
  progress_.Step();
  ended_.Notify();
}

void TextRunner::PrintReady() {
  for (; !open_.empty() && open_.front().has_ended; open_.pop_front()) {
    Print(open_.front());
    open_bytes_ -= open_.front().num_bytes();
    ++num_printed_;
  }
  // After an interrupted write, the signal's handler ends the run.
  if (!run_.output.failed() || run_.output.interrupted()) return;
  if (std::exchange(gave_up_, true)) return;
  run_.source.Stop();
  run_.runtime.EndRequests(kCannotBeWritten);
}

void TextRunner::Print(const Open& open) {
  // Failures are printed on stderr, where the progress line is.
  if (run_.output.is_terminal() || printer_.has_failures()) progress_.Erase();
  if (open.status.ok()) {
    printer_.Begin(open.text);
    run_.output.Write(open.hypotheses);
    run_.output.Flush();
  }
  printer_.End(open.text, open.status);
}

}  // namespace

absl::Status CheckText(const std::string& text) {
  if (text.size() > kMaxLineBytes) {
    return InvalidArgument("a line may have ", kMaxLineBytes,
                           " bytes, this one has more");
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return InvalidArgument("a text must not be blank");
  }
  return absl::OkStatus();
}

asio::awaitable<RunOutcome> PrintTexts(const TextRun& run) {
  const auto runner = std::make_shared<TextRunner>(run);
  co_return co_await runner->Run();
}

absl::StatusOr<RunOutcome> RunTexts(const TextRun& run, bool stream) {
  const auto on_signal = [&] {
    run.source.Stop();
    run.runtime.EndRequests(kInterrupted);
  };
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Interrupt> interrupt,
      Interrupt::Listen(run.runtime.context(), run.output, on_signal));
  RunOutcome outcome;
  outcome.read = Internal("the run was cut short");
  asio::co_spawn(run.runtime.context(),
                 stream ? StreamTexts(run) : PrintTexts(run),
                 [&](std::exception_ptr error, RunOutcome ended) {
                   if (error == nullptr) {
                     outcome = std::move(ended);
                   } else {
                     outcome.read = CutShort(error);
                     run.source.Stop();
                     run.runtime.EndRequests(Message(outcome.read));
                   }
                   interrupt->End();
                   run.runtime.EndStats();
                 });
  run.runtime.context().run();
  outcome.signal = interrupt->signal();
  return outcome;
}

}  // namespace espalier::cli
