#include "examples/cli/options.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "examples/cli/output.h"
#include "exec_request/param_fields.h"

namespace espalier::cli {
namespace {

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
}

// `text` as one argument of a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

absl::Status NotJson(const ParamField& field, const std::string& text,
                     const absl::Status& error) {
  const std::string flag = Flag(field.name);
  std::string message = Concat(flag, " ", Shown(text), ": ", Message(error));
  if (field.value == "TEXT") {
    const json::array as_list = {json::value(text)};
    message += Concat("; to stop at this very text, give ", flag, " ",
                      Quoted(WriteJson(as_list)));
  }
  return InvalidArgument(message);
}

// A value as typed: JSON where it is JSON, otherwise a string. Where a text is
// wanted only JSON strings, lists and objects count, so that --stop 5 means
// what it says. What begins like a list or an object has to be one: a bracket
// too few would make another text of it.
// Errors: kInvalidArgument naming the option.
// REQUIRES: well-formed UTF-8.
absl::StatusOr<json::value> ReadValue(const ParamField& field,
                                      const std::string& text) {
  const bool is_bracketed = text.starts_with('[') || text.starts_with('{');
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok() && is_bracketed) return NotJson(field, text, value.status());
  const bool is_text = field.value == "TEXT" && !is_bracketed;
  if (!value.ok() || (is_text && !value->is_string())) return json::value(text);
  return *std::move(value);
}

// The texts of all values together, as one list; a value of another kind is
// handed on, for the field to refuse. Errors and REQUIRES as above.
absl::StatusOr<json::value> JoinTexts(const ParamField& field,
                                      const std::vector<std::string>& texts) {
  json::array all;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(json::value value, ReadValue(field, text));
    if (value.is_object()) return value;
    if (!value.is_array()) value = json::array{std::move(value)};
    for (json::value& item : value.as_array()) all.push_back(std::move(item));
  }
  return json::value(std::move(all));
}

absl::StatusOr<json::value> ReadValues(const ParamField& field,
                                       const std::vector<std::string>& texts) {
  if (!std::ranges::all_of(texts, IsUtf8)) {
    return InvalidArgument(Flag(field.name), " is not UTF-8");
  }
  if (field.value == "TEXT") return JoinTexts(field, texts);
  if (texts.size() == 1) return ReadValue(field, texts.front());
  return InvalidArgument(Flag(field.name), " is given ", texts.size(),
                         " times: ", Shown(texts[0]), ", ", Shown(texts[1]));
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

}  // namespace

std::string Flag(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return (flag.size() == 1 ? "-" : "--") + flag;
}

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

void AddParamOptions(CLI::App* command, ParamTexts* texts) {
  for (const ParamField& field : ParamFields()) {
    AddParamOption(command, field, texts);
  }
}

absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts) {
  GenerationParams params;
  for (const auto& [name, values] : texts) {
    const ParamField& field = *FindParamField(name);  // an option of ours
    ASSIGN_OR_RETURN(const json::value value, ReadValues(field, values));
    RETURN_IF_ERROR(field.read(name, value, &params));
  }
  return params;
}

absl::Status CheckTrace(const CommonOptions& options, const std::string& option,
                        const std::string& path) {
  const std::string& trace = options.runtime.trace;
  if (trace == "-") return InvalidArgument("--trace needs a file, got -");
  if (IsSameFile(trace, path)) {
    return InvalidArgument("--trace and ", option, " are the same file, ",
                           path);
  }
  return absl::OkStatus();
}

int Refuse(const absl::Status& status) {
  PrintToStderr(Concat("espalier: ", Message(status), "\n"));
  return kNothingRan;
}

}  // namespace espalier::cli
