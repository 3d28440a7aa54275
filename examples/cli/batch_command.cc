#include "examples/cli/batch_command.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "examples/cli/figures.h"
#include "examples/cli/line_reader.h"
#include "examples/cli/options.h"
#include "examples/cli/progress.h"
#include "examples/cli/runtime.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

struct BatchOptions {
  CommonOptions common;
  std::string input = "-";
  std::string output = "-";
};

// Lines that are read but not yet written; bounds memory.
constexpr size_t kMaxOpenLines = 4096;

// Closes what it opened, and nothing else.
struct CloseFile {
  void operator()(FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};
using OutputFile = std::unique_ptr<FILE, CloseFile>;

// One run of the subcommand. All of it runs on the runtime's one thread.
class Batch {
 public:
  Batch(Runtime* runtime, LineReader* reader, FILE* output)
      : runtime_(runtime), reader_(reader), output_(output) {}

  // Reads, runs and writes everything.
  // Errors: kInternal if the output cannot be written.
  asio::awaitable<absl::Status> Run();

  int num_lines() const { return num_lines_; }
  int num_failed() const { return num_failed_; }

 private:
  using Signal =
      asio::experimental::concurrent_channel<void(boost::system::error_code)>;

  void Start(const std::string& line);
  // Runs one line and puts its answer in its place.
  asio::awaitable<void> RunLine(std::string line, int64_t index);
  void WriteReady();
  asio::awaitable<void> AwaitOpenLinesBelow(size_t limit);

  Runtime* const runtime_;
  LineReader* const reader_;
  FILE* const output_;
  // Answers of lines [num_written_, num_lines_), unset while they run.
  std::deque<std::optional<std::string>> open_;
  int64_t num_written_ = 0;
  int num_lines_ = 0;
  int num_failed_ = 0;
  bool write_failed_ = false;
  std::shared_ptr<Signal> written_ =
      std::make_shared<Signal>(runtime_->context(), 1);
  Progress progress_{0};
};

asio::awaitable<absl::Status> Batch::Run() {
  while (!write_failed_) {
    const std::vector<std::string> lines = co_await reader_->Next();
    if (lines.empty()) break;
    for (const std::string& line : lines) Start(line);
    co_await AwaitOpenLinesBelow(kMaxOpenLines);
  }
  progress_.SetTotal(num_lines_);
  co_await AwaitOpenLinesBelow(1);
  if (write_failed_ || std::fflush(output_) != 0) {
    co_return Internal("cannot write the output");
  }
  co_return absl::OkStatus();
}

void Batch::Start(const std::string& line) {
  if (line.find_first_not_of(" \t") == std::string::npos) return;
  open_.emplace_back();
  asio::co_spawn(runtime_->context(), RunLine(line, num_lines_++),
                 [](std::exception_ptr) {});
}

asio::awaitable<void> Batch::AwaitOpenLinesBelow(size_t limit) {
  while (open_.size() >= limit) {
    co_await written_->async_receive(asio::use_awaitable);
  }
}

asio::awaitable<void> Batch::RunLine(std::string line, int64_t index) {
  RequestLine request = ParseRequestLine(line);
  if (request.id.is_null()) request.id = index;
  Answer answer;
  if (request.body.ok()) {
    answer = co_await runtime_->Run(*std::move(request.body));
  } else {
    answer.result = request.body.status();
  }
  if (!answer.result.ok()) ++num_failed_;
  open_[index - num_written_] =
      answer.result.ok()
          ? WriteResultLine(request.id, *answer.result, answer.texts)
          : WriteErrorLine(request.id, answer.result.status());
  progress_.Step();
  WriteReady();
}

void Batch::WriteReady() {
  while (!open_.empty() && open_.front()) {
    std::string line = *std::move(open_.front());
    open_.pop_front();
    ++num_written_;
    line += '\n';
    if (std::fwrite(line.data(), 1, line.size(), output_) != line.size()) {
      write_failed_ = true;
    }
  }
  if (open_.empty()) std::fflush(output_);  // a reader at a pipe's end waits
  written_->try_send(boost::system::error_code());
}

absl::StatusOr<OutputFile> OpenOutput(const std::string& path) {
  FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  if (file == nullptr) return NotFound("cannot write --output ", path);
  return OutputFile(file);
}

asio::awaitable<EngineFigures> RunWithFigures(Batch* batch, Runtime* runtime,
                                              absl::Status* status) {
  *status = co_await batch->Run();
  co_return co_await runtime->engine().Figures();
}

absl::StatusOr<int> RunBatch(const BatchOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Load(options.common.runtime));
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(options.input));
  ASSIGN_OR_RETURN(const OutputFile output, OpenOutput(options.output));
  const Stopwatch watch;
  Batch batch(runtime.get(), reader.get(), output.get());
  absl::Status status;
  EngineFigures figures;
  asio::co_spawn(
      runtime->context(), RunWithFigures(&batch, runtime.get(), &status),
      [&](std::exception_ptr, EngineFigures f) { figures = std::move(f); });
  runtime->context().run();
  RETURN_IF_ERROR(status);
  if (options.common.figures) {
    std::fputs(
        FormatFigures(figures, batch.num_lines(), watch.Elapsed()).c_str(),
        stderr);
  }
  return batch.num_failed() > 0 ? kSomeFailed : kAllSucceeded;
}

constexpr char kExamples[] =
    "Example:\n"
    "  espalier batch -m models/en-fr --input requests.jsonl "
    "--output out.jsonl\n"
    "\n"
    "A line in:   {\"id\": 1, \"prompt\": \"It rains.\", \"params\": "
    "{\"num_beams\": 4}}\n"
    "  or with \"prompt_tokens\": [1, 4, 337, 5] instead of \"prompt\".\n"
    "A line out:  {\"id\": 1, \"hypotheses\": [{\"tokens\": [...], "
    "\"text\": ..., \"score\": ...}], \"usage\": {...}}\n"
    "  or {\"id\": 1, \"error\": {\"code\": ..., \"message\": ...}}.\n"
    "\n"
    "Exit code: 0 if every line succeeded, 1 if some failed, 2 if nothing "
    "could run.";

}  // namespace

void AddBatchCommand(CLI::App* app, int* exit_code) {
  CLI::App* command =
      app->add_subcommand("batch", "JSON lines in, JSON lines out");
  const auto options = std::make_shared<BatchOptions>();
  command->add_option("-i,--input", options->input, "a file; - is stdin")
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "a file; - is stdout")
      ->capture_default_str();
  AddCommonOptions(command, &options->common);
  command->footer(kExamples);
  command->callback([options, exit_code] {
    const absl::StatusOr<int> code = RunBatch(*options);
    *exit_code = code.ok() ? *code : Refuse(code.status());
  });
}

}  // namespace espalier::cli
