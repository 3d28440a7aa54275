#include "examples/cli/batch_command.h"

#include <sys/stat.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/concurrent_channel.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <deque>
#include <exception>
#include <filesystem>
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
#include "exec_request/request_json.h"
#include "exec_request/result_json.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

struct BatchOptions {
  CommonOptions common;
  std::string input = "-";
  std::string output = "-";
};

// Lines that are read but not yet written, and bytes of those of them that are
// not answered yet; bounds memory.
constexpr size_t kMaxOpenLines = 4096;
constexpr size_t kMaxOpenBytes = 64 << 20;

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
  // `flush_lines`: hand on every answer at once.
  Batch(Runtime* runtime, LineReader* reader, FILE* output, bool flush_lines)
      : runtime_(runtime),
        reader_(reader),
        output_(output),
        flush_lines_(flush_lines) {}

  // Reads, runs and writes everything.
  // Errors: kInternal if the input cannot be read or the output not written.
  asio::awaitable<absl::Status> Run();

  int num_lines() const { return num_lines_; }
  int num_failed() const { return num_failed_; }

 private:
  using Signal =
      asio::experimental::concurrent_channel<void(boost::system::error_code)>;

  void Start(std::string line);
  bool IsFull() const;
  // Completes when answers may have been written since the last call.
  asio::awaitable<void> AwaitWritten();
  // Runs one line and puts its answer in its place, the index-th of all.
  asio::awaitable<void> RunLine(std::string line, int64_t line_number,
                                size_t index);
  void WriteReady();

  Runtime* const runtime_;
  LineReader* const reader_;
  FILE* const output_;
  const bool flush_lines_;
  // Answers in input order, unset while they run; the first is the
  // num_written_-th of all.
  std::deque<std::optional<std::string>> open_;
  size_t open_bytes_ = 0;  // of their requests
  size_t num_written_ = 0;
  int64_t num_read_ = 0;  // blank lines included
  int num_lines_ = 0;
  int num_failed_ = 0;
  bool write_failed_ = false;
  bool cut_short_ = false;  // a line could not be answered
  std::shared_ptr<Signal> written_ =
      std::make_shared<Signal>(runtime_->context(), 1);
  Progress progress_{0};
};

asio::awaitable<absl::Status> Batch::Run() {
  absl::Status read;
  while (!write_failed_ && !cut_short_) {
    absl::StatusOr<std::vector<std::string>> lines =
        co_await reader_->AsyncRead();
    read = lines.status();
    if (!lines.ok() || lines->empty()) break;
    for (std::string& line : *lines) {
      Start(std::move(line));
      while (IsFull() && !cut_short_) co_await AwaitWritten();
    }
  }
  progress_.SetTotal(num_lines_);
  while (!open_.empty() && !cut_short_) co_await AwaitWritten();
  progress_.End();
  if (cut_short_) co_return ResourceExhausted("not enough memory for a line");
  if (!read.ok()) co_return read;
  if (write_failed_ || std::fflush(output_) != 0 || std::ferror(output_)) {
    co_return Internal("cannot write the output");
  }
  co_return absl::OkStatus();
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
  if (request.id.is_null()) request.id = line_number;
  Answer answer;
  if (request.body.ok()) {
    request.body->caller_id = request.id.is_string()
                                  ? std::string(request.id.get_string())
                                  : WriteJson(request.id);
    answer = co_await runtime_->Run(*std::move(request.body));
  } else {
    answer.result = request.body.status();
  }
  if (!answer.result.ok()) ++num_failed_;
  std::string text =
      answer.result.ok()
          ? WriteResultLine(request.id, *answer.result, answer.texts)
          : WriteErrorLine(request.id, answer.result.status());
  text += '\n';
  open_bytes_ -= line.size();
  open_[index - num_written_] = std::move(text);
  progress_.Step();
  WriteReady();
}

void Batch::WriteReady() {
  while (!open_.empty() && open_.front()) {
    const std::string line = *std::move(open_.front());
    open_.pop_front();
    ++num_written_;
    if (std::fwrite(line.data(), 1, line.size(), output_) != line.size()) {
      write_failed_ = true;
    }
    if (flush_lines_ && std::fflush(output_) != 0) write_failed_ = true;
  }
  written_->try_send(boost::system::error_code());
}

// Whether somebody may be waiting at the other end.
bool IsInteractive(FILE* output) {
  struct stat info;
  return fstat(fileno(output), &info) == 0 && !S_ISREG(info.st_mode);
}

// Opening the output cuts it to nothing, so it must not be the input.
absl::Status CheckDistinct(const BatchOptions& options) {
  std::error_code error;
  if (std::filesystem::is_regular_file(options.output, error) &&
      std::filesystem::equivalent(options.input, options.output, error)) {
    return InvalidArgument("--input and --output are the same file, ",
                           options.output);
  }
  return absl::OkStatus();
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
  RETURN_IF_ERROR(CheckDistinct(options));
  RETURN_IF_ERROR(CheckTrace(options.common, "--input", options.input));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Load(options.common.runtime));
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(options.input));
  ASSIGN_OR_RETURN(const OutputFile output, OpenOutput(options.output));
  RETURN_IF_ERROR(CheckTrace(options.common, "--output", options.output));
  const Stopwatch watch;
  Batch batch(runtime.get(), reader.get(), output.get(),
              IsInteractive(output.get()));
  absl::Status status = Internal("the run was cut short");
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
    std::fputs(runtime->backend().FormatFigures().c_str(), stderr);
  }
  RETURN_IF_ERROR(runtime->CloseTrace());
  return batch.num_failed() > 0 ? kSomeFailed : kAllSucceeded;
}

constexpr char kExamples[] =
    "Examples:\n"
    "  espalier batch -m models/en-fr --input requests.jsonl "
    "--output out.jsonl\n"
    "  espalier batch -m models/en-fr --device cuda --max-running 1024 "
    "--input requests.jsonl\n"
    "\n"
    "A line in:   {\"id\": 1, \"prompt\": \"It rains.\", \"params\": "
    "{\"num_beams\": 4}}\n"
    "  or with \"prompt_tokens\": [1, 4, 337, 5] instead of \"prompt\".\n"
    "A line out:  {\"id\": 1, \"hypotheses\": [{\"tokens\": [...], "
    "\"text\": ..., \"score\": ...}], \"usage\": {...}}\n"
    "  or {\"id\": 1, \"error\": {\"code\": ..., \"message\": ...}}.\n"
    "\n"
    "Exit code: 0 if every line succeeded, 1 if some failed, 2 if it could "
    "not run, or not read its input or write its output, or its trace, to the "
    "end.";

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
