#include "examples/cli/options/common_options.h"

#include <charconv>
#include <system_error>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "espalier/backend.h"
#include "espalier/model_defaults.h"
#include "examples/cli/output/output.h"
#include "examples/cli/output/stats_file.h"

namespace espalier::cli {
namespace {

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

std::string CheckShare(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() && rest == end;
  if (is_number && value >= 0 && value <= 1) return "";
  return Concat("must be a number in [0, 1], got ", InQuotes(text));
}

std::string CheckOnOrOff(const std::string& text) {
  if (ReadTrueOrFalse(text)) return "";
  return Concat("must be on or off, got ", InQuotes(text));
}

constexpr double kMaxSeconds = 1e9;

// Checks a time limit.
std::string CheckSeconds(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() && rest == end;
  if (is_number && value > 0 && value <= kMaxSeconds) return "";
  return Concat("must be a number of seconds above 0 and at most ", kMaxSeconds,
                ", got ", InQuotes(text));
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
      ->add_option("--generation-config", options->generator.generation_config,
                   "defaults of requests: auto, the default, those of DIR's "
                   "generation_config.json, or without one its config.json; "
                   "strict, an error where that has more than is supported; "
                   "none; or another such file, or a directory with one")
      ->option_text("auto|strict|none|FILE")
      ->group(kGroup);
}

void AddTemplateOptions(CLI::App* command, RuntimeOptions* options) {
  constexpr char kGroup[] = "Model";
  command
      ->add_option("--from", options->from,
                   "language of the prompt, as the model's template names it; "
                   "of a multilingual translator by its code or name: "
                   "eng_Latn, en, English; none for MADLAD-400 and SMaLL-100, "
                   "which take --to alone")
      ->option_text("LANGUAGE")
      ->group(kGroup);
  command->add_option("--to", options->to, "language of the output")
      ->option_text("LANGUAGE")
      ->group(kGroup);
  command
      ->add_option("--template", options->template_name,
                   "prompt template, by its name in prompt_template.json, or "
                   "languages of a multilingual translator: en-fr, or fr where "
                   "--to stands alone")
      ->option_text("NAME")
      ->group(kGroup);
  AddFlag(command, "--parse-special",
          "names of special tokens in texts, such as </s>, are those tokens: "
          "for prompts that a program rendered",
          &options->parse_special)
      ->group(kGroup);
}

// "default 128, on a GPU 2048"
std::string ByDevice(int64_t cpu, int64_t cuda) {
  return Concat("default ", cpu, ", on a GPU ", cuda);
}

// Pages on the device, and on the host.
void AddMemoryOptions(CLI::App* command, RuntimeOptions* options,
                      const char* group) {
  command
      ->add_option("--kv-cache-mib", options->kv_cache_mib,
                   "key/value memory in MiB: on the CPU touched only as "
                   "needed, on a GPU taken at once; " +
                       ByDevice(kCpuDefaults.kv_cache_bytes >> 20,
                                kCudaDefaults.kv_cache_bytes >> 20))
      ->transform(InRange(1, 1 << 20))
      ->option_text("N")
      ->group(group);
  command
      ->add_option("--host-cache-mib", options->host_cache_mib,
                   "host memory in MiB for pages of requests that are "
                   "preempted, to bring them back instead of computing them "
                   "again; 0: none; " +
                       ByDevice(kCpuDefaults.host_cache_bytes >> 20,
                                kCudaDefaults.host_cache_bytes >> 20))
      ->transform(InRange(0, 1 << 20))
      ->option_text("N")
      ->group(group);
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
      ->add_option("--weights", options->generator.weights,
                   "stored, the default, as they are in the file; or "
                   "quantised when they are loaded, with results less exact: "
                   "int8 or int4, of the CPU alone, where they make steps "
                   "faster; or fp8, which makes them faster on a GPU, while "
                   "the CPU computes with the bf16 that it stands for, no "
                   "faster than stored")
      ->option_text("stored|fp8|int8|int4")
      ->group(kGroup);
  command
      ->add_option("--threads", options->generator.num_threads,
                   "of the CPU; 0, the default, is one for each CPU it may use")
      ->transform(InRange(0, 1024))
      ->option_text("N")
      ->group(kGroup);
  AddMemoryOptions(command, options, kGroup);
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
  command
      ->add_option("--preempted-pages", options->generator.preempted_pages,
                   "which of their pages go to host memory: auto, those that "
                   "come back sooner than they are computed, the default; "
                   "host, all, which needs --host-cache-mib above 0; or "
                   "drop, none, which needs --host-cache-mib 0")
      ->option_text("auto|host|drop")
      ->group(kGroup);
}

void AddStepTimeoutOption(CLI::App* command, RuntimeOptions* options) {
  const auto set = [options](double seconds) {
    options->generator.step_timeout = absl::Seconds(seconds);
  };
  command
      ->add_option_function<double>(
          "--step-timeout", set,
          "end all requests, with UNAVAILABLE, if a step takes longer: for a "
          "device that may hang; the first step may be a long one; default no "
          "limit")
      ->check(CLI::Validator(CheckSeconds, ""))
      ->option_text("SECONDS")
      ->group("Engine");
}

// Adds the options that bound one step.
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
  const ModelExecutorOptions kBounds;
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

}  // namespace

CLI::Validator InRange(int64_t low, int64_t high) {
  const auto read = [low, high](std::string& text) {
    return ReadInRange(low, high, &text);
  };
  return CLI::Validator(read, "");
}

CLI::Option* AddFlag(CLI::App* command, const std::string& names,
                     const std::string& help,
                     const std::function<void(const std::string&)>& set) {
  return command->add_flag(names, help)
      ->check(CLI::Validator(CheckTrueOrFalse, ""))
      ->each(set)  // gets only values that passed the check
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

void AddSplitOption(CLI::App* command, RuntimeOptions* options) {
  const auto set = [options](const std::string& text) {
    options->split_sentences = ReadTrueOrFalse(text);
  };
  AddFlag(command, "--split-sentences",
          "translate each sentence of a text by itself, and join what comes of "
          "them; default where the model translates sentences: Marian, or a "
          "prompt template with languages",
          set)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->group("Model");
}

void AddDraftModelOption(CLI::App* command, RuntimeOptions* options) {
  command
      ->add_option(
          "--draft-model", options->generator.draft_model,
          "a smaller model of the same vocabulary, which drafts "
          "tokens: with it --speculate draft is the default; on the CPU "
          "its weights are int8 where --weights is stored")
      ->option_text("DIR")
      ->group("Model");
}

void AddItemsOption(CLI::App* command, RuntimeOptions* options) {
  const auto set = [options](const CLI::results_t& values) {
    for (const std::string& value : values) {
      const size_t end = value.find('=');
      if (end == 0 || end == value.npos || end + 1 == value.size()) {
        throw CLI::ValidationError(
            "--items", Concat("must be NAME=FILE, got ", BytesInQuotes(value)));
      }
      options->generator.items.push_back(
          {value.substr(0, end), value.substr(end + 1)});
    }
    return true;
  };
  const std::string of_file =
      "a catalogue of items that requests name: JSON lines, each an item, a "
      "list of token ids or a text; or an array of ids by numpy.save";
  command
      ->add_option("--items", set,
                   command->get_name() == "generate"
                       ? of_file +
                             "; the only one is that of all texts, of "
                             "several --constraint names one; not with "
                             "another option that restricts the output"
                       : of_file)
      ->type_name("NAME=FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Model");
}

void AddRuntimeOptions(CLI::App* command, RuntimeOptions* options) {
  AddGeneratorOptions(command, options);
  AddDraftModelOption(command, options);
  AddItemsOption(command, options);
  AddTemplateOptions(command, options);
}

void AddGeneratorOptions(CLI::App* command, RuntimeOptions* options) {
  AddModelOptions(command, options);
  AddDeviceOptions(command, options);
  AddSchedulingOptions(command, options);
  AddStepTimeoutOption(command, options);
  AddBoundOptions(command, options);
}

void AddCommonOptions(CLI::App* command, CommonOptions* options) {
  AddRuntimeOptions(command, &options->runtime);
  AddFlag(command, "--figures", "print the run's figures on stderr at the end",
          &options->figures)
      ->group("Output");
  command
      ->add_option("--trace", options->runtime.trace,
                   "write what the search does to this file, for espalier "
                   "trace to draw")
      ->option_text("FILE")
      ->group("Output");
  command
      ->add_option(
          "--stats", options->runtime.stats,
          Concat("keep the run's statistics in this file, as text "
                 "for Prometheus; written every ",
                 absl::ToInt64Seconds(kStatsPeriod), " s and at the end"))
      ->option_text("FILE")
      ->group("Output");
}

void AddDefaultsOfRequests(CLI::App* command, CommonOptions* options) {
  command
      ->add_option("--prefix-cache", options->runtime.generator.prefix_cache,
                   "keep pages, and share them among requests that begin "
                   "alike, unless these say no; default on")
      ->check(CLI::Validator(CheckOnOrOff, ""))
      ->option_text("on|off")
      ->group("Engine");
  command
      ->add_option("--speculate", options->speculate,
                   "how requests speculate that do not say: METHOD[:N[:MODE]], "
                   "as of generate; default off, or draft with "
                   "--draft-model")
      ->option_text("METHOD")
      ->group("Engine");
}

std::string HelpOnDefaults(const RuntimeOptions& options) {
  if (options.model.empty()) return "";
  const absl::StatusOr<GenerationDefaults> defaults =
      LoadModelDefaults(options.generator.generation_config, options.model);
  if (!defaults.ok()) {
    return Concat("\n\nDefaults of this model: none, for ",
                  Message(defaults.status()));
  }
  if (defaults->fields.empty()) return "";
  std::string help =
      Concat("\n\nDefaults of this model, by ", defaults->file_name(), ":");
  for (const auto& [name, value] : defaults->fields) {
    help += Concat("\n  ", name, " ", Shown(value));
  }
  return help;
}

}  // namespace espalier::cli
