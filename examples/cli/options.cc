#include "examples/cli/options.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "exec_request/param_fields.h"

namespace espalier::cli {
namespace {

// "num_beams" is --num-beams; a name of one letter is -n.
std::string Flag(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return (flag.size() == 1 ? "-" : "--") + flag;
}

void AddModelOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Model";
  command
      ->add_option("-m,--model", options->model,
                   "directory with config.json and model.safetensors")
      ->required()
      ->group(kGroup);
  command
      ->add_option("--from", options->from,
                   "language of the prompt, as the model's template names it")
      ->group(kGroup);
  command->add_option("--to", options->to, "language of the output")
      ->group(kGroup);
  command
      ->add_option("--template", options->template_name,
                   "prompt template, by its name in prompt_template.json")
      ->group(kGroup);
}

// "128 (cpu), 2048 (cuda)"
std::string ByDevice(int cpu, int cuda) {
  return std::to_string(cpu) + " (cpu), " + std::to_string(cuda) + " (cuda)";
}

void AddDeviceOptions(CLI::App* command, DeviceOptions* options) {
  constexpr char kGroup[] = "Device";
  command
      ->add_option("--device", options->device,
                   "cpu; cuda, an NVIDIA GPU; or cuda:1, the second of them")
      ->capture_default_str()
      ->group(kGroup);
  command
      ->add_option("--dtype", options->dtype,
                   "f32, f16 or bf16: of weights, activations, keys and "
                   "values; the CPU computes in f32")
      ->default_str("f32 (cpu), bf16 (cuda)")
      ->group(kGroup);
  command
      ->add_option("--threads", options->num_threads,
                   "of the CPU; 0 is one for each CPU it may use")
      ->check(CLI::Range(0, 1024))
      ->default_str("0")
      ->group(kGroup);
  command
      ->add_option(
          "--kv-cache-mib", options->kv_cache_mib,
          "key/value memory in MiB: on the CPU touched only as needed, "
          "on a GPU taken at once")
      ->check(CLI::Range(1, 1 << 20))
      ->default_str(
          ByDevice(kCpuDefaults.kv_cache_mib, kCudaDefaults.kv_cache_mib))
      ->group(kGroup);
}

void AddEngineOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Engine";
  command->add_option("--page-size", options->device.page_size, "tokens a page")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->group(kGroup);
  command
      ->add_option("--max-running", options->max_running,
                   "requests that run together at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kGroup);
  command
      ->add_option("--max-step-tokens", options->device.max_step_tokens,
                   "tokens fed in one step at most")
      ->check(CLI::Range(1, 1 << 20))
      ->default_str(
          ByDevice(kCpuDefaults.max_step_tokens, kCudaDefaults.max_step_tokens))
      ->group(kGroup);
}

// A value as typed: JSON where it is JSON, otherwise a string. Where a text is
// wanted only JSON strings and lists count, so that --stop 5 means what it
// says.
json::value ReadValue(const ParamField& field, const std::string& text) {
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return json::value(text);
  const bool has_text = value->is_string() || value->is_array();
  if (field.value == "TEXT" && !has_text) return json::value(text);
  return *std::move(value);
}

// A field of the request format as an option.
void AddParamOption(CLI::App* command, const ParamField& field,
                    ParamTexts* texts) {
  const std::string name(field.name);
  const std::string help(field.help);
  std::string flags = Flag(name);
  if (!field.alias.empty()) flags += "," + Flag(field.alias);
  const auto set = [texts, name](const std::string& text) {
    (*texts)[name] = text;
  };
  CLI::Option* option = nullptr;
  if (field.value.empty()) {
    // --do-sample, or --do-sample=false
    option = command->add_flag(flags, help)->each(set);
  } else {
    option = command->add_option_function<std::string>(flags, set, help)
                 ->type_name(std::string(field.value));
  }
  option->group(std::string(field.group));
}

}  // namespace

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
      ->group("Output");
}

void AddParamOptions(CLI::App* command, ParamTexts* texts) {
  for (const ParamField& field : ParamFields()) {
    AddParamOption(command, field, texts);
  }
}

absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts) {
  GenerationParams params;
  for (const auto& [name, text] : texts) {
    const ParamField& field = *FindParamField(name);  // an option of ours
    RETURN_IF_ERROR(field.read(name, ReadValue(field, text), &params));
  }
  return params;
}

absl::Status CheckTrace(const CommonOptions& options, const std::string& option,
                        const std::string& path) {
  const std::string& trace = options.runtime.trace;
  if (trace == "-") return InvalidArgument("--trace needs a file, got -");
  std::error_code error;
  if (!trace.empty() && std::filesystem::is_regular_file(path, error) &&
      std::filesystem::equivalent(trace, path, error)) {
    return InvalidArgument("--trace and ", option, " are the same file, ",
                           path);
  }
  return absl::OkStatus();
}

int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "espalier: %s\n", Message(status).c_str());
  return kNothingRan;
}

}  // namespace espalier::cli
