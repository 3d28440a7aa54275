#include "examples/cli/runtime/stream_output.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "examples/cli/output/hanging_indent.h"
#include "examples/cli/output/printing.h"
#include "examples/cli/runtime/wakeup.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// Texts that run and are not printed yet: each has its whole output waiting at
// worst.
constexpr size_t kMaxOpenStreams = 256;

// Prints one text's events. Their texts are whole characters, so that each can
// be shown by itself.
class StreamPrinter {
 public:
  StreamPrinter(bool numbers_samples, Output* output)
      : numbers_samples_(numbers_samples), output_(output) {}

  void Print(const SampleEvent& event) {
    if (!numbers_samples_) return Grow(event.text);
    if (event.text.empty()) return;
    const std::string sample = Concat("  [", event.sample, "] ");
    output_->Write(sample + HangingIndent(sample.size()).Add(event.text) +
                   "\n");
  }
  void Print(const StablePrefixEvent& event) { Grow(event.text); }
  void Print(const BeamsEvent&) {}
  void Print(const Result&) {}

  // Ends the line that grows, if one does.
  void EndLine() {
    if (std::exchange(grows_, false)) output_->Write("\n");
  }

  // The numbers of the result's samples, if they were printed with numbers.
  std::vector<int> NumbersOf(const Result& result) const;

 private:
  void Grow(const std::string& text) {
    if (text.empty()) return;
    output_->Write((std::exchange(grows_, true) ? "" : "  ") +
                   indent_.Add(text));
  }

  const bool numbers_samples_;
  Output* const output_;
  HangingIndent indent_ = HangingIndent(2);  // for the growing text
  bool grows_ = false;
};

std::vector<int> StreamPrinter::NumbersOf(const Result& result) const {
  std::vector<int> numbers;
  if (!numbers_samples_) return numbers;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    numbers.push_back(hypothesis.sample);
  }
  return numbers;
}

// Reads and prints until the answer is there.
asio::awaitable<absl::Status> PrintEvents(AnswerStream& stream,
                                          StreamPrinter& printer,
                                          Output& output) {
  while (true) {
    absl::StatusOr<std::optional<StreamEvent>> event = co_await stream.Next();
    if (!event.ok()) co_return event.status();
    if (!event->has_value()) co_return absl::OkStatus();
    std::visit([&](const auto& e) { printer.Print(e); }, **event);
    output.Flush();
    if (output.failed()) co_return absl::CancelledError("nobody reads");
  }
}

// Returns what became of a text that has begun.
asio::awaitable<absl::Status> PrintStream(const TextRun& run,
                                          AnswerStream& stream) {
  run.output.Flush();
  StreamPrinter printer(stream.num_samples() > 1, &run.output);
  const absl::Status status = co_await PrintEvents(stream, printer, run.output);
  printer.EndLine();
  if (!status.ok()) co_return status;
  const Generation answer = stream.TakeAnswer();
  run.output.Write(FormatHypotheses(answer, *run.runtime.tokenizer(),
                                    printer.NumbersOf(answer)));
  run.output.Flush();
  co_return absl::OkStatus();
}

// Opens streams as texts come, and prints them one after the other. All of it
// runs on the runtime's one thread. What opens the streams owns it, too.
class TextStreamer : public std::enable_shared_from_this<TextStreamer> {
 public:
  explicit TextStreamer(const TextRun& run)
      : run_(run),
        printer_(&run.output),
        opened_(run.runtime.context()),
        printed_(run.runtime.context()) {}

  asio::awaitable<RunOutcome> Run();

 private:
  struct Open {
    std::string text;
    absl::StatusOr<AnswerStream> stream;
  };

  // Opens streams until the texts end, or the output takes no more.
  asio::awaitable<absl::Status> OpenAll();
  asio::awaitable<void> OpenNext(std::string text);
  bool IsFull() const;
  // Prints until nothing is left, or should be.
  asio::awaitable<void> PrintAll();

  const TextRun run_;
  TextPrinter printer_;
  std::deque<Open> open_;
  size_t open_bytes_ = 0;  // total length of their texts
  Wakeup opened_;          // or all are
  Wakeup printed_;         // or no more will be
  int64_t num_read_ = 0;
  absl::Status read_;  // once all are opened
  bool all_opened_ = false;
};

asio::awaitable<RunOutcome> TextStreamer::Run() {
  asio::co_spawn(
      run_.runtime.context(), OpenAll(),
      [self = shared_from_this()](std::exception_ptr error, absl::Status read) {
        self->read_ =
            error == nullptr ? read : ResourceExhausted("not enough memory");
        self->all_opened_ = true;
        self->opened_.Notify();
      });
  std::exception_ptr error;
  try {
    co_await PrintAll();
  } catch (...) {  // what opens the streams has to end all the same
    error = std::current_exception();
  }
  run_.source.Stop();
  open_.clear();
  printed_.Notify();
  while (!all_opened_) co_await opened_.Wait();
  if (error != nullptr) std::rethrow_exception(error);
  co_return RunOutcome{printer_.Finish(num_read_), read_};
}

asio::awaitable<absl::Status> TextStreamer::OpenAll() {
  while (!run_.source.stopped()) {
    absl::StatusOr<std::vector<std::string>> texts =
        co_await run_.source.Read();
    if (!texts.ok() || texts->empty()) co_return texts.status();
    for (std::string& text : *texts) {
      while (IsFull()) co_await printed_.Wait();
      if (run_.source.stopped()) break;
      ++num_read_;
      co_await OpenNext(std::move(text));
    }
  }
  co_return absl::OkStatus();
}

bool TextStreamer::IsFull() const {
  return open_.size() >= kMaxOpenStreams ||
         (open_bytes_ >= kMaxWaitingBytes && !open_.empty());
}

asio::awaitable<void> TextStreamer::OpenNext(std::string text) {
  absl::StatusOr<AnswerStream> stream;
  if (absl::Status bad = CheckText(text); !bad.ok()) {
    stream = std::move(bad);
  } else {
    // GCC 12 destroys a braced temporary in an awaited call twice.
    RequestBody body = {text, {}, run_.params, "", run_.given};
    body.split_sentences = run_.split_sentences;
    stream = co_await run_.runtime.Stream(std::move(body));
  }
  if (run_.source.stopped()) co_return;
  open_bytes_ += text.size();
  open_.push_back({std::move(text), std::move(stream)});
  opened_.Notify();
}

asio::awaitable<void> TextStreamer::PrintAll() {
  while (!run_.output.failed()) {
    while (open_.empty() && !all_opened_) co_await opened_.Wait();
    if (open_.empty()) co_return;
    Open open = std::move(open_.front());
    open_.pop_front();
    open_bytes_ -= open.text.size();
    printed_.Notify();
    absl::Status status = open.stream.status();
    if (status.ok()) {
      printer_.Begin(open.text);
      status = co_await PrintStream(run_, *open.stream);
    }
    printer_.End(open.text, run_.names.InOptions(status));
    if (status.code() == absl::StatusCode::kCancelled) co_return;
  }
}

}  // namespace

asio::awaitable<RunOutcome> StreamTexts(const TextRun& run) {
  const auto streamer = std::make_shared<TextStreamer>(run);
  co_return co_await streamer->Run();
}

}  // namespace espalier::cli
