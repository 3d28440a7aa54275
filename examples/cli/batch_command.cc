#include "examples/cli/batch_command.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "examples/cli/async_line_reader.h"
#include "examples/cli/exit_code.h"
#include "examples/cli/figures.h"
#include "examples/cli/interrupt.h"
#include "examples/cli/line_reader.h"
#include "examples/cli/options.h"
#include "examples/cli/output.h"
#include "examples/cli/progress.h"
#include "examples/cli/runtime.h"
#include "exec_request/request_json.h"
#include "exec_request/result_json.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

// Lines that are read but not yet written, and bytes of those of them that are
// not answered yet; bounds memory.
constexpr size_t kMaxOpenLines = 4096;
constexpr size_t kMaxOpenBytes = 64 << 20;

// One run of the subcommand. All of it runs on the runtime's one thread.
class Batch {
 public:
  Batch(Runtime* runtime, AsyncLineReader* reader, Output* output)
      : runtime_(runtime), reader_(reader), output_(output) {}

  // Reads, runs and writes everything, up to an error of writing.
  // Errors: kInternal if the input cannot be read.
  asio::awaitable<absl::Status> Run();

  // Reads no more. Requests that are cancelled from now on get no answer.
  void Stop();

  int num_lines() const { return num_lines_; }
  int num_answered() const { return num_answered_; }
  int num_failed() const { return num_failed_; }

 private:
  using Signal =
      asio::experimental::concurrent_channel<void(boost::system::error_code)>;

  // Stops, and cancels what runs: nobody will read the answers.
  void End();
  void Start(std::string line);
  bool IsFull() const;
  // Completes when answers may have been written since the last call.
  asio::awaitable<void> AwaitWritten();
  // Runs one line and puts its answer in its place, the index-th of all.
  asio::awaitable<void> RunLine(std::string line, int64_t line_number,
                                size_t index);
  // Without its line end; empty if it is left out.
  std::string AnswerLine(const std::string& id, const Answer& answer);
  void WriteReady();

  Runtime* const runtime_;
  AsyncLineReader* const reader_;
  Output* const output_;
  // Answers in input order, unset while they run; the first is the
  // num_written_-th of all. Those that are left out are empty.
  std::deque<std::optional<std::string>> open_;
  size_t open_bytes_ = 0;  // of their requests
  size_t num_written_ = 0;
  int64_t num_read_ = 0;  // blank lines included
  int num_lines_ = 0;
  int num_answered_ = 0;  // and written
  int num_failed_ = 0;
  bool stopped_ = false;
  bool cut_short_ = false;  // a line could not be answered
  std::shared_ptr<Signal> written_ =
      std::make_shared<Signal>(runtime_->context(), 1);
  Progress progress_{0};
};

asio::awaitable<absl::Status> Batch::Run() {
  absl::Status read;
  while (!output_->failed() && !cut_short_) {
    absl::StatusOr<std::vector<std::string>> lines = co_await reader_->Read();
    read = lines.status();
    if (!lines.ok() || lines->empty()) break;
    for (std::string& line : *lines) {
      Start(std::move(line));
      while (IsFull() && !cut_short_) co_await AwaitWritten();
    }
  }
  progress_.SetTotal(num_lines_);
  while (!open_.empty() && !cut_short_) co_await AwaitWritten();
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
  open_.emplace_back();
  open_bytes_ += line.size();
  ++num_lines_;
  asio::co_spawn(
      runtime_->context(),
      RunLine(std::move(line), line_number, num_written_ + open_.size() - 1),
      [this](std::exception_ptr error) {
        if (error == nullptr) return;
        cut_short_ = true;
        reader_->Stop();
        written_->try_send(boost::system::error_code());
      });
}

bool Batch::IsFull() const {
  return open_.size() >= kMaxOpenLines ||
         (open_bytes_ >= kMaxOpenBytes && !open_.empty());
}

asio::awaitable<void> Batch::AwaitWritten() {
  co_await written_->async_receive(asio::use_awaitable);
}

asio::awaitable<void> Batch::RunLine(std::string line, int64_t line_number,
                                     size_t index) {
  RequestLine request = ParseRequestLine(line);
  if (line.size() > kMaxLineBytes) {
    request.body = InvalidArgument("a line may have ", kMaxLineBytes,
                                   " bytes, this one has more");
  }
  if (request.id.empty()) request.id = std::to_string(line_number);
  Answer answer;
  if (request.body.ok()) {
    std::string& caller_id = request.body->caller_id;
    if (caller_id.empty()) caller_id = request.id;
    answer = co_await runtime_->Run(*std::move(request.body));
  } else {
    answer.result = request.body.status();
  }
  open_bytes_ -= line.size();
  open_[index - num_written_] = AnswerLine(request.id, answer);
  progress_.Step();
  WriteReady();
}

std::string Batch::AnswerLine(const std::string& id, const Answer& answer) {
  const absl::Status status = answer.result.status();
  if (stopped_ && status.code() == absl::StatusCode::kCancelled) return "";
  if (status.ok()) return WriteResultLine(id, *answer.result, answer.texts);
  ++num_failed_;
  return WriteErrorLine(id, status);
}

void Batch::WriteReady() {
  if (output_->is_terminal()) progress_.Erase();
  while (!open_.empty() && open_.front()) {
    const std::string line = *std::move(open_.front());
    open_.pop_front();
    ++num_written_;
    if (line.empty()) continue;
    output_->Write(line + "\n");
    output_->Flush();
    if (!output_->failed()) ++num_answered_;
  }
  if (output_->failed() && !output_->interrupted() && !stopped_) End();
  written_->try_send(boost::system::error_code());
}

absl::Status CheckDistinct(const BatchOptions& options) {
  if (IsSameFile(options.input, options.output)) {
    return InvalidArgument("--input and --output are the same file, ",
                           options.output);
  }
  return absl::OkStatus();
}

asio::awaitable<EngineFigures> RunWithFigures(Batch* batch, Runtime* runtime,
                                              absl::Status* status) {
  *status = co_await batch->Run();
  co_return co_await runtime->engine().Figures();
}

// Runs it to its end, or to a signal, which is returned; 0 if there was none.
absl::StatusOr<int> RunToEnd(Batch& batch, Runtime& runtime,
                             const Output& output, EngineFigures* figures) {
  absl::Status status = Internal("the run was cut short");
  Interrupt interrupt(runtime, output, [&] { batch.Stop(); });
  asio::co_spawn(runtime.context(), RunWithFigures(&batch, &runtime, &status),
                 [&](std::exception_ptr, EngineFigures f) {
                   *figures = std::move(f);
                   interrupt.End();
                 });
  runtime.context().run();
  RETURN_IF_ERROR(status);
  return interrupt.signal();
}

void PrintFigures(const EngineFigures& figures, const Batch& batch,
                  const Backend& backend, absl::Duration wall_time) {
  PrintToStderr(FormatFigures(figures, batch.num_answered(), wall_time) +
                backend.FormatFigures());
}

void PrintInterrupted(const Batch& batch) {
  PrintToStderr(
      Concat("espalier: interrupted: ", Counted(batch.num_lines(), "request"),
             " read, ", batch.num_answered(), " answered\n"));
}

}  // namespace

absl::StatusOr<int> RunBatch(const BatchOptions& options) {
  RETURN_IF_ERROR(CheckDistinct(options));
  RETURN_IF_ERROR(CheckTrace(options.common, "--input", options.input));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Load(options.common.runtime));
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(options.input));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output,
                   Output::Open(options.output));
  RETURN_IF_ERROR(CheckTrace(options.common, "--output", options.output));
  const Stopwatch watch;
  AsyncLineReader async_reader(reader.get());
  Batch batch(runtime.get(), &async_reader, output.get());
  EngineFigures figures;
  ASSIGN_OR_RETURN(const int signal,
                   RunToEnd(batch, *runtime, *output, &figures));
  const absl::Status written = output->Close();
  if (signal == 0 || !output->interrupted()) RETURN_IF_ERROR(written);
  if (signal != 0) PrintInterrupted(batch);
  if (options.common.figures) {
    PrintFigures(figures, batch, runtime->backend(), watch.Elapsed());
  }
  RETURN_IF_ERROR(runtime->CloseTrace());
  if (signal != 0) return ExitCodeOf(signal);
  return batch.num_failed() > 0 ? kSomeFailed : kAllSucceeded;
}

const char kBatchExamples[] =
    R"(Examples:
  espalier batch -m models/en-fr --input requests.jsonl --output out.jsonl
  espalier batch -m models/en-fr --device cuda --max-running 1024 \
    --input requests.jsonl

A line in:   {"id": 1, "prompt": "It rains.", "params": {"num_beams": 4}}
  or with "prompt_tokens": [1, 4, 337, 5] instead of "prompt".
A line out:  {"id": 1, "hypotheses": [{"tokens": [...], "text": ...,
              "score": ...}], "usage": {...}}
  or         {"id": 1, "error": {"code": ..., "message": ...}}.
params are the options of espalier generate, with _ for -;
docs/request_format.md has them all.

Exit code: 0 if every line succeeded, 1 if some failed, 2 if it could not run,
or not read its input, or write its output or its trace, to the end. Ctrl-C
writes the answers that are there; the exit code is 130 then.)";

}  // namespace espalier::cli
