#include "examples/cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "examples/cli/batch_command.h"
#include "examples/cli/exit_code.h"
#include "examples/cli/generate_command.h"
#include "examples/cli/options.h"
#include "examples/cli/trace_command.h"
#include "examples/cli/usage_error.h"
#include "exec_request/param_fields.h"

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

std::string CheckInRange(const std::string& text, int low, int high) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() && rest == end;
  if (is_number && value >= low && value <= high) return "";
  return Concat("must be an integer in [", low, ", ", high, "], got ",
                ShownInQuotes(text));
}

// An integer from `low` to `high`.
CLI::Validator InRange(int low, int high) {
  const auto check = [low, high](const std::string& text) {
    return CheckInRange(text, low, high);
  };
  return CLI::Validator(check, "");
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
std::string ByDevice(int cpu, int cuda) {
  return Concat("default ", cpu, ", on a GPU ", cuda);
}

void AddDeviceOptions(CLI::App* command, DeviceOptions* options) {
  constexpr char kGroup[] = "Device";
  command
      ->add_option("--device", options->device,
                   "cpu, the default; cuda, an NVIDIA GPU; or cuda:1, the "
                   "second of them")
      ->option_text("DEVICE")
      ->group(kGroup);
  command
      ->add_option("--dtype", options->dtype,
                   "f32, f16 or bf16: of weights, activations, keys and "
                   "values; default f32, on a GPU bf16; the CPU computes in "
                   "f32")
      ->option_text("DTYPE")
      ->group(kGroup);
  command
      ->add_option("--threads", options->num_threads,
                   "of the CPU; 0, the default, is one for each CPU it may use")
      ->check(InRange(0, 1024))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option(
          "--kv-cache-mib", options->kv_cache_mib,
          "key/value memory in MiB: on the CPU touched only as "
          "needed, on a GPU taken at once; " +
              ByDevice(kCpuDefaults.kv_cache_mib, kCudaDefaults.kv_cache_mib))
      ->check(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
}

void AddEngineOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Engine";
  command
      ->add_option("--page-size", options->device.page_size,
                   Concat("tokens a page; default ", options->device.page_size))
      ->check(InRange(1, 4096))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--max-running", options->max_running,
                   Concat("requests that run together at most; default ",
                          options->max_running))
      ->check(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--max-step-tokens", options->device.max_step_tokens,
                   "tokens fed in one step at most; " +
                       ByDevice(kCpuDefaults.max_step_tokens,
                                kCudaDefaults.max_step_tokens))
      ->check(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
  command
      ->add_option("--max-beams", options->device.max_beams,
                   "of a GPU: beams and samples of all requests that run at "
                   "most; default what 1 GiB of logits holds, up to "
                   "--max-step-tokens")
      ->check(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(kGroup);
}

// The options of the model and of the engine.
void AddCommonOptions(CLI::App* command, CommonOptions* options) {
  AddModelOptions(command, &options->runtime);
  AddDeviceOptions(command, &options->runtime.device);
  AddEngineOptions(command, &options->runtime);
  command
      ->add_flag("--figures", options->figures,
                 "print the run's figures on stderr at the end")
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
  CLI::Option* option = nullptr;
  if (field.value.empty()) {
    // --do-sample, or --do-sample=false
    option = command->add_flag(flags, help)
                 ->each([texts, name](const std::string& text) {
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
void AddGenerateCommand(CLI::App* app, int* exit_code) {
  CLI::App* command = app->add_subcommand("generate", "n-best lists for texts");
  const auto options = std::make_shared<GenerateOptions>();
  AddTexts(command, &options->texts);
  command->add_option("-f,--file", options->file, "one text a line; - is stdin")
      ->option_text("FILE");
  command
      ->add_flag("--stream", options->stream,
                 "print text while it is generated; of beams, what all of them "
                 "agree on so far")
      ->group("Output");
  AddParamOptions(command, &options->params);
  AddCommonOptions(command, &options->common);
  command->footer(kGenerateExamples);
  command->callback([options, exit_code] {
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
      ->option_text("N")
      ->group("Limits");
  command
      ->add_option("--max-list-elements", options->limits.max_list_elements,
                   Concat("elements of a field at most, those of lists in it "
                          "included; default ",
                          RequestLineLimits().max_list_elements))
      ->option_text("N")
      ->group("Limits");
  AddCommonOptions(command, &options->common);
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

}  // namespace

int RunCommandLine(int argc, char** argv) {
  CLI::App app("espalier: beam search over shared, paged memory", "espalier");
  app.formatter(std::make_shared<HelpFormatter>());  // of commands, too
  app.require_subcommand(1);
  app.set_version_flag("--version", "espalier " ESPALIER_VERSION);
  int exit_code = kAllSucceeded;
  AddGenerateCommand(&app, &exit_code);
  AddBatchCommand(&app, &exit_code);
  AddTraceCommand(&app, &exit_code);
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    RefuseEmptyValues(command);
  }
  app.footer("espalier COMMAND --help explains a command, with examples.");
  const absl::Status arguments = CheckArguments(app, {argv, argv + argc});
  if (!arguments.ok()) return Refuse(arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Refuse(InvalidArgument(DescribeUsageError(app, error)));
  }
  return exit_code;
}

}  // namespace espalier::cli
