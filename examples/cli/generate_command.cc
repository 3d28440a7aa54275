#include "examples/cli/generate_command.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "examples/cli/exit_code.h"
#include "examples/cli/figures.h"
#include "examples/cli/interrupt.h"
#include "examples/cli/line_reader.h"
#include "examples/cli/options.h"
#include "examples/cli/output.h"
#include "examples/cli/printing.h"
#include "examples/cli/progress.h"
#include "examples/cli/runtime.h"
#include "examples/cli/stream_output.h"
#include "examples/cli/text_printer.h"

namespace espalier::cli {
namespace {

absl::StatusOr<std::vector<std::string>> NonEmptyLines(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(path));
  std::vector<std::string> texts;
  while (true) {
    ASSIGN_OR_RETURN(std::vector<std::string> lines, reader->Read());
    if (lines.empty()) break;
    for (std::string& line : lines) {
      if (line.size() > kMaxLineBytes) {
        return InvalidArgument("a line of ", reader->name(), " has more than ",
                               kMaxLineBytes, " bytes");
      }
      const bool is_blank = line.find_first_not_of(" \t") == line.npos;
      if (!is_blank) texts.push_back(std::move(line));
    }
  }
  if (texts.empty()) return InvalidArgument("no text in ", reader->name());
  return texts;
}

// The texts to run: arguments, or the lines of a file or of stdin.
absl::StatusOr<std::vector<std::string>> Texts(const GenerateOptions& options) {
  if (!options.texts.empty() && !options.file.empty()) {
    return InvalidArgument("give texts or --file, not both");
  }
  if (std::ranges::find(options.texts, "-") != options.texts.end()) {
    if (options.texts.size() == 1) return NonEmptyLines("-");
    return InvalidArgument(
        "give texts or -, which is the lines of stdin, not both");
  }
  if (!options.texts.empty()) return options.texts;
  if (options.file.empty() && isatty(STDIN_FILENO)) {
    return InvalidArgument(
        "no text: give it as an argument, with --file, or through a pipe");
  }
  return NonEmptyLines(options.file.empty() ? "-" : options.file);
}

void PrintFigures(Runtime& runtime, int num_requests,
                  absl::Duration wall_time) {
  runtime.context().restart();
  boost::asio::co_spawn(
      runtime.context(), runtime.engine().Figures(),
      [&](std::exception_ptr, const EngineFigures& figures) {
        PrintToStderr("\n" + FormatFigures(figures, num_requests, wall_time) +
                      runtime.backend().FormatFigures());
      });
  runtime.context().run();
}

// Runs all texts together, and prints each as soon as it and all before it have
// ended. Those that a signal cancels are left out. While a reader keeps it
// waiting nothing runs, as in batch, and figures count that.
class AllTexts {
 public:
  AllTexts(Runtime& runtime, const std::vector<std::string>& texts,
           const GenerationParams& params, Output& output, Interrupt& interrupt)
      : runtime_(runtime),
        texts_(texts),
        output_(output),
        interrupt_(interrupt),
        answers_(texts.size()),
        progress_(static_cast<int>(texts.size())),
        printer_(texts.size(), &output) {
    for (size_t i = 0; i < texts.size(); ++i) {
      boost::asio::co_spawn(runtime.context(),
                            runtime.Run({texts[i], {}, params}),
                            [this, i](std::exception_ptr, Answer answer) {
                              answers_[i] = std::move(answer);
                              PrintReady();
                            });
    }
  }

  Outcome Run() {
    runtime_.context().run();
    progress_.Erase();
    return printer_.Finish();
  }

 private:
  void PrintReady() {
    for (; num_printed_ < texts_.size() && answers_[num_printed_];
         ++num_printed_) {
      Print(texts_[num_printed_], *std::exchange(answers_[num_printed_], {}));
    }
    progress_.Step();
    if (num_printed_ == texts_.size()) interrupt_.End();
    if (!output_.failed() || output_.interrupted()) return;
    if (!std::exchange(gave_up_, true)) runtime_.EndRequests(kCannotBeWritten);
  }

  void Print(const std::string& text, const Answer& answer) {
    // Failures are told on stderr, where progress is.
    if (output_.is_terminal() || printer_.has_failures()) progress_.Erase();
    if (answer.result.ok()) {
      printer_.Begin(text);
      output_.Write(FormatHypotheses(answer));
      output_.Flush();
    }
    printer_.End(text, answer.result.status());
  }

  Runtime& runtime_;
  const std::vector<std::string>& texts_;
  Output& output_;
  Interrupt& interrupt_;
  std::vector<std::optional<Answer>> answers_;  // that were not printed yet
  size_t num_printed_ = 0;
  bool gave_up_ = false;
  Progress progress_;
  TextPrinter printer_;
};

// Prints texts while they run.
Outcome StreamToEnd(Runtime& runtime, const std::vector<std::string>& texts,
                    const GenerationParams& params, Output& output,
                    Interrupt& interrupt) {
  Outcome outcome;
  boost::asio::co_spawn(runtime.context(),
                        StreamAll(runtime, texts, params, output),
                        [&](std::exception_ptr, Outcome streamed) {
                          outcome = streamed;
                          interrupt.End();
                        });
  runtime.context().run();
  return outcome;
}

}  // namespace

absl::StatusOr<int> Generate(const GenerateOptions& options) {
  ASSIGN_OR_RETURN(const GenerationParams params,
                   ReadParams(options.params, options.names));
  RETURN_IF_ERROR(CheckTrace(options.common, "--file", options.file));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, Texts(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Load(options.common.runtime));
  if (!runtime->has_tokenizer()) {
    return FailedPrecondition(
        options.common.runtime.model,
        " has no tokenizer.model: use espalier batch with prompt_tokens");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  RETURN_IF_ERROR(runtime->OpenTrace());
  const Stopwatch watch;
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::Listen(runtime->context(), *output, [&] {
                     runtime->EndRequests(kInterrupted);
                   }));
  const Outcome outcome =
      options.stream
          ? StreamToEnd(*runtime, texts, params, *output, *interrupt)
          : AllTexts(*runtime, texts, params, *output, *interrupt).Run();
  const int signal = interrupt->signal();
  const absl::Duration wall_time = watch.Elapsed();
  const absl::Status written = output->Close();
  if (signal != 0) PrintToStderr("espalier: interrupted\n");
  if (options.common.figures) {
    PrintFigures(*runtime, outcome.num_answered, wall_time);
  }
  if (signal == 0 || !output->interrupted()) RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(runtime->CloseTrace());
  if (signal != 0) return ExitCodeOf(signal);
  return outcome.num_failed > 0 ? kSomeFailed : kAllSucceeded;
}

const char kGenerateExamples[] =
    R"(Examples:
  espalier generate -m models/en-fr --num-beams 5 -n 3 "Where is the station?"
  espalier generate -m models/en-fr --from fr --to en "Il pleut."
  espalier generate -m models/en-fr --num-beams 4 --file letter.txt
  espalier generate -m models/en-fr --do-sample -n 3 --top-p 0.9 --seed 1 \
    "Can you help me, please?"
  espalier generate -m models/en-fr --logprobs 3 --stop , "Yes, it rains."
  espalier generate -m models/en-fr --stop , --stop " et" "Yes, it rains."
  espalier generate -m models/en-fr --stream "It rains."
  espalier generate -m models/en-fr --num-beams 4 --trace search.jsonl \
    "It rains."
  espalier generate -m models/en-fr --device cuda --num-beams 8 --figures \
    "It rains."

Each text gives its hypotheses, best first, with their scores: the
log-probability divided by length^length_penalty, or with one beam the mean.
Without --from and --to the model's default template is taken; that of
models/en-fr is English to French. What begins with [ or { is JSON.

With --stream one sample's text, or what all beams agree on so far, grows on a
line of its own. Several samples come piece by piece, each on a line after its
sample's number: [0] Il

A terminal is shown control characters as \u001b; a file or a pipe gets them as
they are.

--device cuda needs an NVIDIA GPU and a program built by preset cuda. In bf16
scores differ a little from the CPU's, so that near ties may fall the other
way; --dtype f32 keeps them within rounding.

Exit code: 0 if every text succeeded, 1 if some failed, 2 if it could not run,
or not write its output or its trace. Ctrl-C prints what has finished; the exit
code is 130 then.)";

}  // namespace espalier::cli
