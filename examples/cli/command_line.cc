#include "examples/cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "espalier/backend.h"
#include "examples/cli/batch_command.h"
#include "examples/cli/exit_code.h"
#include "examples/cli/generate_command.h"
#include "examples/cli/options.h"
#include "examples/cli/output.h"
#include "examples/cli/trace_command.h"
#include "examples/cli/usage_error.h"
#include "request/json/param_fields.h"

namespace espalier::cli {
namespace {

// Help texts that fit a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  // What an option is for, in lines as wide as its column leaves.
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr size_t kColumns = 80;
    const size_t width = kColumns - get_column_width();
    std::istringstream words(option->get_description());
    std::string text;
    size_t column = 0;
    for (std::string word; words >> word;) {
      const bool fits = column + 1 + word.size() <= width;
      if (column > 0) text += fits ? ' ' : '\n';
      column = word.size() + (column > 0 && fits ? column + 1 : 0);
      text += word;
    }
    return text;
  }
};

// Leaves the number that was meant in `*text`, without leading zeros, which
// would make an octal one of it for CLI11.
std::string ReadInRange(int64_t low, int64_t high, std::string* text) {
  int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  const bool is_number = error == std::errc() && rest == end;
  if (!is_number || value < low || value > high) {
    return Concat("must be an integer in [", low, ", ", high, "], got ",
                  InQuotes(*text));
  }
  *text = std::to_string(value);
  return "";
}

std::string CheckTrueOrFalse(const std::string& text) {
  if (ReadTrueOrFalse(text)) return "";
  return Concat("must be true or false, got ", InQuotes(text));
}

// An integer from `low` to `high`, in decimal. For transform().
CLI::Validator InRange(int64_t low, int64_t high) {
  const auto read = [low, high](std::string& text) {
    return ReadInRange(low, high, &text);
  };
  return CLI::Validator(read, "");
}

std::string CheckShare(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() && rest == end;
  if (is_number && value >= 0 && value <= 1) return "";
  return Concat("must be a number in [0, 1], got ", InQuotes(text));
}

// --do-sample, or --do-sample=false.
CLI::Option* AddFlag(CLI::App* command, const std::string& names,
                     const std::string& help,
                     const std::function<void(const std::string&)>& set) {
  return command->add_flag(names, help)
      ->check(CLI::Validator(CheckTrueOrFalse, ""))
      ->each(set)  // of what the check has let through
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* AddFlag(CLI::App* command, const std::string& name,
                     const std::string& help, bool* flag) {
  const auto set = [flag](const std::string& text) {
    *flag = ReadTrueOrFalse(text).value();
  };
  return AddFlag(command, name, help, set)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void AddModelOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Model";
  command
      ->add_option("-m,--model", options->model,
                   "required: a directory with config.json and "
                   "model.safetensors")
      ->required()
      ->option_text("DIR")
      ->group(kGroup);
  command
      ->add_option("--from", options->from,
                   "language of the prompt, as the model's template names it")
      ->option_text("LANGUAGE")
      ->group(kGroup);
  command->add_option("--to", options->to, "language of the output")
      ->option_text("LANGUAGE")
      ->group(kGroup);
  command
      ->add_option("--template", options->template_name,
                   "prompt template, by its name in prompt_template.json")
      ->option_text("NAME")
      ->group(kGroup);
}

// "default 128, on a GPU 2048"
std::string ByDevice(int64_t cpu, int64_t cuda) {
  return Concat("default ", cpu, ", on a GPU ", cuda);
}

void AddDeviceOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Device";
  command
      ->add_option("--device", options->generator.device,
                   "cpu, the default; cuda, an NVIDIA GPU; cuda:1, the second "
                   "of them; or auto, a GPU if there is one")
      ->option_text("DEVICE")
      ->group(kGroup);
  command
      ->add_option("--dtype", options->generator.dtype,
                   "f32, f16 or bf16: of weights, activations, keys and "
                   "values; default f32, on a GPU bf16; the CPU computes in "
                   "f32")
      ->option_text("DTYPE")
      ->group(kGroup);
  command
      ->add_option("--threads", options->generator.num_threads,
                   "of the CPU; 0, the default, is one for each CPU it may use")
      ->transform(InRange(0, 1024))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--kv-cache-mib", options->kv_cache_mib,
                   "key/value memory in MiB: on the CPU touched only as "
                   "needed, on a GPU taken at once; " +
                       ByDevice(kCpuDefaults.kv_cache_bytes >> 20,
                                kCudaDefaults.kv_cache_bytes >> 20))
      ->transform(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
}

void AddSchedulingOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Engine";
  command
      ->add_option("--page-size", options->generator.page_size,
                   Concat("tokens a page; default ", kDefaultPageSize))
      ->transform(InRange(1, 4096))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--max-running", options->generator.max_running,
                   Concat("requests that run together at most; default ",
                          options->generator.max_running))
      ->transform(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--max-step-tokens", options->generator.max_step_tokens,
                   "tokens fed in one step at most; " +
                       ByDevice(kCpuDefaults.max_step_tokens,
                                kCudaDefaults.max_step_tokens))
      ->transform(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--prefill-share", options->generator.prefill_share,
                   Concat("part of a step's tokens that prompts get, in "
                          "[0, 1], however many beams there are; default ",
                          options->generator.prefill_share))
      ->check(CLI::Validator(CheckShare, ""))
      ->option_text("X")
      ->group(kGroup);
}

// What one step may take.
void AddBoundOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Engine";
  command
      ->add_option("--max-beams", options->generator.max_beams,
                   "beams and samples of all requests that run at most; "
                   "default what 1 GiB of logits holds, up to 8192 on the CPU "
                   "and --max-step-tokens on a GPU")
      ->transform(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
  constexpr ModelExecutorOptions kBounds;
  command
      ->add_option("--max-candidates", options->generator.max_candidates,
                   Concat("of the CPU: candidates ranked in one step at most; "
                          "default ",
                          kBounds.max_candidates))
      ->transform(InRange(1, int64_t{1} << 40))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--max-score-edits", options->generator.max_score_edits,
                   Concat("of the CPU: scores that penalties, biases and bans "
                          "change in one step at most; default ",
                          kBounds.max_score_edits))
      ->transform(InRange(1, int64_t{1} << 40))
      ->option_text("N")
      ->group(kGroup);
}

// The options of the model and of the engine.
void AddCommonOptions(CLI::App* command, CommonOptions* options) {
  AddModelOptions(command, &options->runtime);
  AddDeviceOptions(command, &options->runtime);
  AddSchedulingOptions(command, &options->runtime);
  AddBoundOptions(command, &options->runtime);
  AddFlag(command, "--figures", "print the run's figures on stderr at the end",
          &options->figures)
      ->group("Output");
  command
      ->add_option("--trace", options->runtime.trace,
                   "write what the search does to this file, for espalier "
                   "trace to draw")
      ->option_text("FILE")
      ->group("Output");
}

// A field of the request format as an option.
void AddParamOption(CLI::App* command, const ParamField& field,
                    ParamTexts* texts) {
  const std::string name(field.name);
  const std::string help(field.help);
  std::string flags = Flag(name);
  if (!field.alias.empty()) flags += "," + Flag(field.alias);
  if (field.alias.size() == 1) flags += ",--" + std::string(field.alias);
  CLI::Option* option = nullptr;
  if (field.value.empty()) {
    option =
        AddFlag(command, flags, help, [texts, name](const std::string& text) {
          (*texts)[name].push_back(text);
        });
  } else {
    const auto set = [texts, name](const CLI::results_t& values) {
      (*texts)[name] = values;
      return true;
    };
    option = command->add_option(flags, set, help)
                 ->type_name(std::string(field.value));
  }
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->group(std::string(field.group));
}

// Options --num-beams and so on, one for each field of the request format.
void AddParamOptions(CLI::App* command, ParamTexts* texts) {
  for (const ParamField& field : ParamFields()) {
    AddParamOption(command, field, texts);
  }
}

// Any number of arguments.
void AddTexts(CLI::App* command, std::vector<std::string>* texts) {
  // Each is taken as it is: an option that takes "extra" arguments would part
  // "[a, b]" into two. One that waits for more arguments than there can be
  // takes all, those behind "--" included.
  constexpr int kNeverEnough = CLI::detail::expected_max_vector_size;
  command
      ->add_option("text", *texts,
                   "texts, behind -- if one begins with -; none, or -, is the "
                   "lines of stdin")
      ->expected(kNeverEnough, kNeverEnough)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->option_text("...");
}

// Lets no option of `command` have an empty value, as `--trace "$FILE"` gives
// it where FILE is not set: it would pass for an option that was left out.
// Several values at once, the texts to run, are left alone: each gets its own
// answer.
void RefuseEmptyValues(CLI::App* command) {
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "must not be empty" : "";
  };
  for (CLI::Option* option : command->get_options()) {
    if (option->get_items_expected_max() != 1) continue;
    // Unlike check() this comes before the checks that are there already.
    option->transform(CLI::Validator(check, ""));
  }
}

// Each adds a subcommand, which sets `*exit_code` when it runs.
void AddGenerateCommand(CLI::App* app, std::span<char* const> args,
                        int* exit_code) {
  CLI::App* command = app->add_subcommand("generate", "n-best lists for texts");
  const auto options = std::make_shared<GenerateOptions>();
  AddTexts(command, &options->texts);
  command->add_option("-f,--file", options->file, "one text a line; - is stdin")
      ->option_text("FILE");
  AddFlag(command, "--stream",
          "print text while it is generated; of beams, what all of them agree "
          "on so far",
          &options->stream)
      ->group("Output");
  AddParamOptions(command, &options->params);
  AddCommonOptions(command, &options->common);
  command->footer(kGenerateExamples);
  command->callback([command, args, options, exit_code] {
    options->names = TypedNames(*command, args);
    const absl::StatusOr<int> code = Generate(*options);
    *exit_code = code.ok() ? *code : Refuse(code.status());
  });
}

void AddBatchCommand(CLI::App* app, int* exit_code) {
  CLI::App* command =
      app->add_subcommand("batch", "JSON lines in, JSON lines out");
  const auto options = std::make_shared<BatchOptions>();
  command
      ->add_option("-i,--input", options->input,
                   "a file; -, the default, is stdin")
      ->option_text("FILE");
  command
      ->add_option("-o,--output", options->output,
                   "a file; -, the default, is stdout")
      ->option_text("FILE");
  command
      ->add_option("--max-line-bytes", options->max_line_bytes,
                   Concat("bytes of a line at most; default ", kMaxLineBytes))
      ->transform(InRange(1, 1 << 30))
      ->option_text("N")
      ->group("Limits");
  command
      ->add_option("--max-list-elements", options->limits.max_list_elements,
                   Concat("elements of a field at most, those of lists in it "
                          "included; default ",
                          RequestLineLimits().max_list_elements))
      ->transform(InRange(1, 1 << 30))
      ->option_text("N")
      ->group("Limits");
  AddCommonOptions(command, &options->common);
  // espalier generate has the field of that name.
  command
      ->add_option("--prefix-cache",
                   options->common.runtime.generator.prefix_cache,
                   "keep pages, and share them among requests that begin "
                   "alike, unless these say no; default on")
      ->check(CLI::Validator(CheckTrueOrFalse, ""))
      ->option_text("on|off")
      ->group("Engine");
  command->footer(kBatchExamples);
  command->callback([options, exit_code] {
    const absl::StatusOr<int> code = RunBatch(*options);
    *exit_code = code.ok() ? *code : Refuse(code.status());
  });
}

void AddTraceCommand(CLI::App* app, int* exit_code) {
  CLI::App* command =
      app->add_subcommand("trace", "the tree of a search as a picture");
  const auto options = std::make_shared<TraceOptions>();
  command
      ->add_option("file", options->file,
                   "what --trace has written; - is stdin")
      ->required()
      ->option_text(" ");
  command
      ->add_option("--to", options->format,
                   "text, svg, html or dot; default what FILE ends in, or "
                   "text")
      ->option_text("FORMAT");
  command
      ->add_option("-o,--output", options->output,
                   "a file; -, the default, is stdout")
      ->option_text("FILE");
  command
      ->add_option("--request", options->request,
                   "the one request to draw: its id, or its number if no id "
                   "is this")
      ->option_text("ID");
  command->footer(kTraceExamples);
  command->callback([options, exit_code] {
    const absl::Status status = DrawTrace(*options);
    *exit_code = status.ok() ? kAllSucceeded : Refuse(status);
  });
}

// Prints what was asked for instead of a run, as --help, and returns the exit
// code.
int PrintHelp(const CLI::App& app, const CLI::Success& asked_for) {
  std::ostringstream text;
  const int exit_code = app.exit(asked_for, text, text);
  absl::StatusOr<std::unique_ptr<Output>> output = Output::Open("-");
  if (!output.ok()) return Refuse(output.status());
  (*output)->Write(text.str());
  const absl::Status written = (*output)->Close();
  return written.ok() ? exit_code : Refuse(written);
}

int ParseAndRun(std::span<char* const> args) {
  CLI::App app("espalier: beam search over shared, paged memory", "espalier");
  app.formatter(std::make_shared<HelpFormatter>());  // of commands, too
  app.require_subcommand(1);
  app.set_version_flag("--version", "espalier " ESPALIER_VERSION);
  int exit_code = kAllSucceeded;
  AddGenerateCommand(&app, args, &exit_code);
  AddBatchCommand(&app, &exit_code);
  AddTraceCommand(&app, &exit_code);
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    RefuseEmptyValues(command);
  }
  app.footer("espalier COMMAND --help explains a command, with examples.");
  const absl::Status arguments = CheckArguments(app, args);
  if (!arguments.ok()) return Refuse(arguments);
  try {
    app.parse(static_cast<int>(args.size()), args.data());
  } catch (const CLI::Success& asked_for) {
    return PrintHelp(app, asked_for);
  } catch (const CLI::ParseError& error) {
    return Refuse(InvalidArgument(DescribeUsageError(app, args, error)));
  }
  return exit_code;
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  try {
    return ParseAndRun({argv, argv + argc});
  } catch (const std::exception& error) {  // no memory, no threads
    return Refuse(ResourceExhausted("cannot go on: ", error.what()));
  }
}

}  // namespace espalier::cli
