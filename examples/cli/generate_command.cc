#include "examples/cli/generate_command.h"

#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "examples/cli/figures.h"
#include "examples/cli/line_reader.h"
#include "examples/cli/options.h"
#include "examples/cli/printing.h"
#include "examples/cli/progress.h"
#include "examples/cli/runtime.h"
#include "examples/cli/stream_output.h"

namespace espalier::cli {
namespace {

struct GenerateOptions {
  CommonOptions common;
  ParamTexts params;
  std::vector<std::string> texts;
  std::string file;
  bool stream = false;
};

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
        return InvalidArgument("a line of ", path, " has more than ",
                               kMaxLineBytes, " bytes");
      }
      if (!line.empty()) texts.push_back(std::move(line));
    }
  }
  if (texts.empty()) return InvalidArgument("no text in ", path);
  return texts;
}

// The texts to run: arguments, or the lines of a file or of stdin.
absl::StatusOr<std::vector<std::string>> Texts(const GenerateOptions& options) {
  if (!options.texts.empty() && !options.file.empty()) {
    return InvalidArgument("give texts or --file, not both");
  }
  if (options.texts == std::vector<std::string>{"-"}) {
    return NonEmptyLines("-");
  }
  if (!options.texts.empty()) return options.texts;
  if (options.file.empty() && isatty(STDIN_FILENO)) {
    return InvalidArgument(
        "no text: give it as an argument, with --file, or through a pipe");
  }
  return NonEmptyLines(options.file.empty() ? "-" : options.file);
}

// Runs all texts together; answers are in the order of the texts.
std::vector<Answer> RunAll(Runtime& runtime,
                           const std::vector<std::string>& texts,
                           const GenerationParams& params) {
  std::vector<Answer> answers(texts.size());
  Progress progress(static_cast<int>(texts.size()));
  for (size_t i = 0; i < texts.size(); ++i) {
    boost::asio::co_spawn(runtime.context(),
                          runtime.Run({texts[i], {}, params}),
                          [&, i](std::exception_ptr, Answer answer) {
                            answers[i] = std::move(answer);
                            progress.Step();
                          });
  }
  runtime.context().run();
  return answers;
}

void PrintFigures(Runtime& runtime, int num_requests,
                  absl::Duration wall_time) {
  runtime.context().restart();
  boost::asio::co_spawn(
      runtime.context(), runtime.engine().Figures(),
      [&](std::exception_ptr, const EngineFigures& figures) {
        std::fputs("\n", stderr);
        std::fputs(FormatFigures(figures, num_requests, wall_time).c_str(),
                   stderr);
        std::fputs(runtime.backend().FormatFigures().c_str(), stderr);
      });
  runtime.context().run();
}

// One text with its hypotheses, best first:
//   Where is the station?
//     -0.1529  Où est la gare ?
// Errors go to stderr. Returns how many failed.
int PrintAll(const std::vector<std::string>& texts,
             const std::vector<Answer>& answers) {
  int num_failed = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) std::printf("\n");
    if (answers[i].result.ok()) {
      std::printf("%s\n", texts[i].c_str());
      PrintHypotheses(answers[i]);
    } else {
      ++num_failed;
      PrintFailure(texts[i], answers[i].result.status());
    }
  }
  return num_failed;
}

// Prints texts while they run. Returns how many failed.
int StreamToEnd(Runtime& runtime, const std::vector<std::string>& texts,
                const GenerationParams& params) {
  int num_failed = 0;
  boost::asio::co_spawn(
      runtime.context(), StreamAll(runtime, texts, params),
      [&](std::exception_ptr, int failed) { num_failed = failed; });
  runtime.context().run();
  return num_failed;
}

// The exit code.
int CheckWritten(int num_failed) {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    return Refuse(Internal("cannot write stdout"));
  }
  return num_failed > 0 ? kSomeFailed : kAllSucceeded;
}

absl::StatusOr<int> Generate(const GenerateOptions& options) {
  ASSIGN_OR_RETURN(const GenerationParams params, ReadParams(options.params));
  RETURN_IF_ERROR(CheckTrace(options.common, "--file", options.file));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, Texts(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Load(options.common.runtime));
  if (!runtime->has_tokenizer()) {
    return FailedPrecondition(
        options.common.runtime.model,
        " has no tokenizer.model: use espalier batch with prompt_tokens");
  }
  const Stopwatch watch;
  std::vector<Answer> answers;
  int num_failed = 0;
  if (options.stream) {
    num_failed = StreamToEnd(*runtime, texts, params);
  } else {
    answers = RunAll(*runtime, texts, params);
  }
  const absl::Duration wall_time = watch.Elapsed();
  if (!options.stream) num_failed = PrintAll(texts, answers);
  const int exit_code = CheckWritten(num_failed);
  if (options.common.figures) {
    PrintFigures(*runtime, static_cast<int>(texts.size()), wall_time);
  }
  RETURN_IF_ERROR(runtime->CloseTrace());
  return exit_code;
}

constexpr char kExamples[] =
    "Examples:\n"
    "  espalier generate -m models/en-fr --num-beams 5 "
    "--num-return-sequences 3 \"Where is the station?\"\n"
    "  espalier generate -m models/en-fr --from fr --to en \"Il pleut.\"\n"
    "  espalier generate -m models/en-fr --num-beams 4 --file letter.txt\n"
    "  espalier generate -m models/en-fr --do-sample -n 3 --top-p 0.9 "
    "\"It rains.\"\n"
    "  espalier generate -m models/en-fr --logprobs 3 --stop , "
    "\"Yes, it rains.\"\n"
    "  espalier generate -m models/en-fr --stream \"It rains.\"\n"
    "  espalier generate -m models/en-fr --num-beams 4 --trace search.jsonl "
    "\"It rains.\"\n"
    "  espalier generate -m models/en-fr --device cuda --num-beams 8 "
    "--figures \"It rains.\"\n"
    "\n"
    "Each text gives its hypotheses, best first, with their scores:\n"
    "the log-probability divided by length^length_penalty, or with one beam "
    "the\n"
    "mean. Exit code: 0 if every text succeeded, 1 if some failed, 2 if it\n"
    "could not run, or not write its trace. Without --from and --to the "
    "model's default template is\n"
    "taken; that of models/en-fr is English to French.\n"
    "\n"
    "With --stream one sample's text, or what all beams agree on so far, "
    "grows\n"
    "on a line of its own. Several samples come piece by piece, each on a "
    "line\n"
    "after its sample's number: [0] Il\n"
    "\n"
    "--device cuda needs an NVIDIA GPU and a program built by preset cuda. In "
    "bf16\n"
    "scores differ a little from the CPU's, so that near ties may fall the "
    "other\n"
    "way; --dtype f32 keeps them within rounding.";

}  // namespace

void AddGenerateCommand(CLI::App* app, int* exit_code) {
  CLI::App* command = app->add_subcommand("generate", "n-best lists for texts");
  const auto options = std::make_shared<GenerateOptions>();
  command->add_option("text", options->texts,
                      "texts; none, or -, is the lines of stdin");
  command->add_option("-f,--file", options->file,
                      "one text a line; - is stdin");
  command
      ->add_flag("--stream", options->stream,
                 "print text while it is generated; of beams, what all of them "
                 "agree on so far")
      ->group("Output");
  AddParamOptions(command, &options->params);
  AddCommonOptions(command, &options->common);
  command->footer(kExamples);
  command->callback([options, exit_code] {
    const absl::StatusOr<int> code = Generate(*options);
    *exit_code = code.ok() ? *code : Refuse(code.status());
  });
}

}  // namespace espalier::cli
