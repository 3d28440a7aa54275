#include "examples/cli/commands/batch_command.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "examples/cli/commands/batch_line.h"
#include "examples/cli/input/async_line_reader.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/input/open_lines.h"
#include "examples/cli/options/options.h"
#include "examples/cli/output/cut_short.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/figures.h"
#include "examples/cli/output/output.h"
#include "examples/cli/output/progress.h"
#include "examples/cli/output/progress_ticks.h"
#include "examples/cli/runtime/interrupt.h"
#include "examples/cli/runtime/runtime.h"
#include "examples/cli/runtime/wakeup.h"
#include "examples/cli/runtime/worker_thread.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// One run of the subcommand. Lines become requests, and results lines, on a
// thread of its own, so that the steps of what runs never wait for that; all
// else runs on the runtime's one thread.
class Batch {
 public:
  Batch(Runtime* runtime, AsyncLineReader* reader, Output* output,
        const BatchOptions& options)
      : runtime_(runtime),
        reader_(reader),
        output_(output),
        options_(options),
        written_(runtime->context()) {}

  // Reads, runs and writes everything, up to an error of writing.
  // Errors: those of LineReader::Read.
  asio::awaitable<absl::Status> Run();

  // Reads no more. Requests that are cancelled from now on get no answer.
  void Stop();
  // Stops, and cancels running requests, because their answers cannot be
  // written.
  void End();

  int num_lines() const { return num_lines_; }
  int num_answered() const { return num_answered_; }
  int num_failed() const { return num_failed_; }

 private:
  class LineEnd;

  void Start(std::string line);
  // The line has its answer, or none: there was no memory.
  void EndLine(size_t number, std::optional<LineAnswer> answer);
  // Puts the answer in its place; those of requests that were cancelled because
  // no more are wanted are left out.
  void Take(size_t number, LineAnswer answer);
  // A line could not be answered: there is no memory.
  void CutShort();
  // Says one note of each kind.
  void Print(const DrawNote& note);
  void WriteReady();

  Runtime* const runtime_;
  AsyncLineReader* const reader_;
  Output* const output_;
  const BatchOptions& options_;
  OpenLines open_;
  int64_t num_read_ = 0;  // blank lines included
  int num_lines_ = 0;
  int num_running_ = 0;
  int num_answered_ = 0;  // and written
  int num_failed_ = 0;
  bool stopped_ = false;
  bool cut_short_ = false;  // a line could not be answered
  std::set<DrawNoteKind> noted_;
  Wakeup written_;  // a line has its answer, or has none
  Progress progress_{0};
  WorkerThread lines_;  // when it ends nothing runs on it
};

// Completion handler of one line, called on the thread that ran it. It passes
// the answer to EndLine() on the runtime's thread; destroyed without a call
// (WorkerThread), it passes none.
class Batch::LineEnd {
 public:
  LineEnd(Batch* batch, size_t number)
      : batch_(batch),
        number_(number),
        work_(batch->runtime_->context().get_executor()) {}
  LineEnd(LineEnd&& other)
      : batch_(std::exchange(other.batch_, nullptr)),
        number_(other.number_),
        work_(std::move(other.work_)) {}
  ~LineEnd() {
    if (batch_ != nullptr) Report(std::nullopt);
  }

  void operator()(std::exception_ptr error, LineAnswer answer) {
    if (error != nullptr) return Report(std::nullopt);
    Report(std::move(answer));
  }

 private:
  void Report(std::optional<LineAnswer> answer) {
    Batch* const batch = std::exchange(batch_, nullptr);
    const auto shared = UntilThereIsMemory([&] {
      return std::make_shared<std::optional<LineAnswer>>(std::move(answer));
    });
    UntilThereIsMemory([&] {
      asio::post(work_.get_executor(), [batch, number = number_, shared] {
        batch->EndLine(number, std::move(*shared));
      });
    });
  }

  Batch* batch_;  // null: already called, or moved from
  size_t number_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
};

asio::awaitable<absl::Status> Batch::Run() {
  absl::Status read;
  while (!output_->failed() && !cut_short_) {
    absl::StatusOr<std::vector<std::string>> lines = co_await reader_->Read();
    read = lines.status();
    if (!lines.ok() || lines->empty()) break;
    for (std::string& line : *lines) {
      Start(std::move(line));
      while (open_.is_full() && !cut_short_) co_await written_.Wait();
    }
  }
  progress_.SetTotal(num_lines_);
  const ProgressTicks ticks(runtime_->context(), &progress_);
  while (cut_short_ ? num_running_ > 0 : !open_.empty()) {
    co_await written_.Wait();
  }
  progress_.Erase();
  if (cut_short_) co_return ResourceExhausted("not enough memory for a line");
  co_return read;
}

void Batch::End() {
  Stop();
  runtime_->EndRequests(kCannotBeWritten);
}

void Batch::Stop() {
  stopped_ = true;
  reader_->Stop();
}

void Batch::Start(std::string line) {
  const int64_t line_number = num_read_++;
  if (line.find_first_not_of(" \t") == std::string::npos) return;
  const size_t number = open_.Open(line.size());
  ++num_lines_;
  ++num_running_;
  asio::co_spawn(lines_.context(),
                 RunLine(runtime_, std::move(line), line_number, options_),
                 LineEnd(this, number));
}

void Batch::EndLine(size_t number, std::optional<LineAnswer> answer) {
  --num_running_;
  if (answer.has_value()) {
    Take(number, *std::move(answer));
  } else {
    CutShort();
  }
  written_.Notify();
}

void Batch::Take(size_t number, LineAnswer answer) {
  const bool is_left_out =
      stopped_ && answer.code == absl::StatusCode::kCancelled;
  if (is_left_out) answer.line.clear();
  if (!is_left_out && answer.code != absl::StatusCode::kOk) ++num_failed_;
  for (const DrawNote& note : answer.notes) Print(note);
  open_.Answer(number, std::move(answer.line));
  progress_.Step();
  WriteReady();
}

void Batch::Print(const DrawNote& note) {
  if (!noted_.insert(note.kind).second) return;
  progress_.Erase();
  PrintToStderr(
      Concat("espalier: note: ", note.text, " (said of one such request)\n"));
}

void Batch::CutShort() {
  cut_short_ = true;
  End();
}

void Batch::WriteReady() {
  if (output_->is_terminal()) progress_.Erase();
  while (const std::optional<std::string> line = open_.Take()) {
    if (line->empty()) continue;
    output_->Write(*line);
    output_->Write("\n");
    output_->Flush();
    if (!output_->failed()) ++num_answered_;
  }
  if (output_->failed() && !output_->interrupted() && !stopped_) End();
}

absl::Status CheckDistinct(const BatchOptions& options) {
  const std::string output = OutputPath(options.output);
  if (IsSameFile(InputPath(options.input), output)) {
    const OptionNames& names = options.common.runtime.names;
    return InvalidArgument(names.Of("input"), " and ", names.Of("output"),
                           " are the same file, ", output);
  }
  return absl::OkStatus();
}

// Outcome of the run.
struct BatchEnd {
  absl::Status status;  // why it stopped before the end of its input
  int signal = 0;       // that ended it, or 0
};

// Runs it to its end, or to a signal.
// Errors: those of Interrupt::Listen.
absl::StatusOr<BatchEnd> RunToEnd(Batch& batch, Runtime& runtime,
                                  Output& output) {
  BatchEnd end;
  end.status = Internal("the run was cut short");
  const auto on_signal = [&] {
    batch.Stop();
    runtime.EndRequests(kInterrupted);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::Listen(runtime.context(), output, on_signal));
  asio::co_spawn(runtime.context(), batch.Run(),
                 [&](std::exception_ptr error, absl::Status status) {
                   if (error == nullptr) {
                     end.status = std::move(status);
                   } else {
                     end.status = CutShort(error);
                     batch.End();
                   }
                   interrupt->End();
                   runtime.EndStats();
                 });
  runtime.context().run();
  end.signal = interrupt->signal();
  return end;
}

absl::StatusOr<std::unique_ptr<Runtime>> LoadRuntime(
    const CommonOptions& common) {
  RuntimeOptions options = common.runtime;
  if (!common.speculate.empty()) {
    ASSIGN_OR_RETURN(options.generator.speculate,
                     ReadSpeculate(common.speculate));
  }
  return Runtime::Load(options);
}

void PrintFigures(Runtime& runtime, const Batch& batch,
                  absl::Duration wall_time) {
  PrintToStderr(
      FormatFigures(runtime.Stats(), batch.num_answered(), wall_time) +
      runtime.backend().FormatFigures());
}

void PrintEmpty(const Batch& batch, const LineReader& reader) {
  if (batch.num_lines() > 0) return;
  PrintToStderr(Concat("espalier: note: no requests in ", reader.name(), "\n"));
}

// Prints the number of failed requests if the user cannot see the answers on
// stdout.
void PrintFailed(const Batch& batch, const BatchOptions& options) {
  const bool is_hidden = options.output != "-" || options.common.figures;
  if (!is_hidden || batch.num_failed() == 0) return;
  PrintToStderr(Concat("espalier: ", batch.num_failed(), " of ",
                       Pluralize(batch.num_lines(), "request"), " failed\n"));
}

void PrintInterrupted(const Batch& batch) {
  PrintToStderr(
      Concat("espalier: interrupted: ", Pluralize(batch.num_lines(), "request"),
             " read, ", batch.num_answered(), " answered\n"));
}

}  // namespace

absl::StatusOr<int> RunBatch(const BatchOptions& options) {
  const OptionNames& names = options.common.runtime.names;
  const std::string input_name = names.Of("input");
  const std::string output_name = names.Of("output");
  RETURN_IF_ERROR(CheckDistinct(options));
  RETURN_IF_ERROR(
      CheckFiles(options.common, input_name, InputPath(options.input)));
  RETURN_IF_ERROR(
      CheckFiles(options.common, output_name, OutputPath(options.output)));
  const absl::StatusOr<std::unique_ptr<LineReader>> reader =
      LineReader::Open(options.input, options.max_line_bytes);
  if (!reader.ok()) {
    // The file may stand without the option's name.
    return names.IsTyped("input") ? Annotate(reader.status(), input_name)
                                  : reader.status();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   LoadRuntime(options.common));
  const absl::StatusOr<std::unique_ptr<Output>> opened =
      Output::Open(options.output);
  if (!opened.ok()) return Annotate(opened.status(), output_name);
  Output* const output = opened->get();
  // Once more: before, neither file may have been there.
  RETURN_IF_ERROR(
      CheckFiles(options.common, output_name, OutputPath(options.output)));
  RETURN_IF_ERROR(runtime->OpenTrace());
  RETURN_IF_ERROR(runtime->OpenStats());
  // No file is truncated before all of them are open.
  output->CutToNothing();
  const Stopwatch watch;
  AsyncLineReader async_reader(reader->get());
  Batch batch(runtime.get(), &async_reader, output, options);
  ASSIGN_OR_RETURN(const BatchEnd end, RunToEnd(batch, *runtime, *output));
  const absl::Status written = output->Close();
  if (end.signal != 0) {
    PrintInterrupted(batch);
  } else if (end.status.ok()) {
    PrintEmpty(batch, **reader);
  }
  PrintFailed(batch, options);
  if (options.common.figures) {
    PrintFigures(*runtime, batch, watch.Elapsed());
  }
  const absl::Status stats = runtime->CloseStats();
  if (end.signal == 0 || !output->interrupted()) RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(runtime->CloseTrace());
  RETURN_IF_ERROR(stats);
  if (end.signal != 0) return ExitCodeOf(end.signal);
  RETURN_IF_ERROR(end.status);
  return batch.num_failed() > 0 ? kSomeFailed : kAllSucceeded;
}

const char kBatchExamples[] =
    R"(Examples:
  espalier batch -m models/en-fr requests.jsonl --output out.jsonl
  espalier batch -m models/en-fr --device cuda --max-running 1024 requests.jsonl

A line in:   {"id": 1, "prompt": "It rains.", "params": {"num_beams": 4}}
  or with "template": NAME beside "prompt", which is --template of that line,
  or with "prompt_tokens": [1, 4, 337, 5] instead of "prompt", or with
  "messages": [{"role": "user", "content": "Hello!"}], a conversation that the
  model's chat template makes a prompt of.
A line out:  {"id": 1, "hypotheses": [{"tokens": [...], "text": ...,
              "score": ...}], "usage": {...}}
  or         {"id": 1, "error": {"code": ..., "message": ...}}.
params are the options of espalier generate, with _ for -;
docs/request_format.md has them all. What a request leaves open the model's
generation_config.json decides, if it has that field (--generation-config);
espalier inspect DIR lists what it has.

Exit code: 0 if every line succeeded, 1 if some failed, 2 if it could not run,
or not read its input, or write its output, its trace or its statistics, to the
end. Ctrl-C, SIGTERM and SIGHUP write the answers that are there; then the
program ends by that signal, which a shell shows as 130, 143 or 129.)";

}  // namespace espalier::cli
