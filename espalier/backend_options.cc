#include "espalier/backend_options.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/cpu_count.h"
#include "base/field_error.h"
#include "base/shown_bytes.h"
#include "espalier/backend.h"

namespace espalier {
namespace {

// The type that other programs call so; "" if none.
std::string_view MeantDType(std::string_view text) {
  if (text == "half" || text == "float16" || text == "fp16") return "f16";
  if (text == "bfloat16") return "bf16";
  if (text == "float" || text == "float32" || text == "fp32") return "f32";
  return "";
}

// Checks options against each other, and names them in errors.
class Resolver {
 public:
  explicit Resolver(const GeneratorOptions& options) : options_(options) {}

  absl::StatusOr<BackendOptions> Resolve() const;

 private:
  absl::StatusOr<DeviceChoice> ChooseDevice() const;
  absl::StatusOr<DType> ParseDType() const;
  absl::StatusOr<DType> ChooseDType(const DeviceChoice& device) const;
  absl::StatusOr<WeightFormat> ChooseWeights(const DeviceChoice& device,
                                             DType dtype) const;
  absl::StatusOr<PreemptedPages> ParsePreemptedPages() const;
  // Errors: kInvalidArgument naming an option that is given though the device
  // decides. What is "auto" may be the CPU.
  absl::Status CheckOfCpu() const;
  absl::Status CheckRange() const;
  absl::Status CheckSpeculation() const;

  const GeneratorOptions& options_;
};

absl::StatusOr<DeviceChoice> Resolver::ChooseDevice() const {
  const std::string& text = options_.device;
  if (text == "cpu") return DeviceChoice{};
  if (text == "cuda") return DeviceChoice{.is_cuda = true};
  if (text == "auto") return DeviceChoice{.is_cuda = HasCudaDevice(0)};
  constexpr std::string_view kPrefix = "cuda:";
  DeviceChoice device{.is_cuda = true};
  const char* const begin = text.data() + kPrefix.size();
  const char* const end = text.data() + text.size();
  if (text.starts_with(kPrefix) && begin != end && *begin != '-') {
    const auto [rest, error] = std::from_chars(begin, end, device.ordinal);
    if (error == std::errc() && rest == end) return device;
  }
  return InvalidField(OptionName{"device"},
                      " must be auto, cpu, cuda or cuda:N with N from 0",
                      Got(BytesInQuotes(text)));
}

absl::StatusOr<DType> Resolver::ParseDType() const {
  if (options_.dtype == "f32") return DType::kFloat32;
  if (options_.dtype == "f16") return DType::kFloat16;
  if (options_.dtype == "bf16") return DType::kBFloat16;
  const std::string_view meant = MeantDType(options_.dtype);
  return InvalidField(
      OptionName{"dtype"}, " must be f32, f16 or bf16",
      Got(BytesInQuotes(options_.dtype),
          meant.empty() ? "" : Concat("; did you mean ", meant, "?")));
}

absl::StatusOr<DType> Resolver::ChooseDType(const DeviceChoice& device) const {
  if (options_.dtype.empty()) {
    return (device.is_cuda ? kCudaDefaults : kCpuDefaults).dtype;
  }
  ASSIGN_OR_RETURN(const DType dtype, ParseDType());
  if (!device.is_cuda && dtype != DType::kFloat32) {
    return InvalidField(OptionName{"dtype"}, " ", options_.dtype, " needs ",
                        OptionName{"device"}, " cuda; the CPU computes in f32");
  }
  return dtype;
}

absl::StatusOr<WeightFormat> Resolver::ChooseWeights(const DeviceChoice& device,
                                                     DType dtype) const {
  const std::string& text = options_.weights;
  if (text == "stored") return WeightFormat::kAsStored;
  if (text == "fp8") {
    if (!device.is_cuda || dtype == DType::kBFloat16) return WeightFormat::kFp8;
    return InvalidField(
        OptionName{"weights"}, " fp8 needs ", OptionName{"dtype"},
        " bf16, which a GPU multiplies them in", Got(options_.dtype));
  }
  if (text != "int8" && text != "int4") {
    return InvalidField(OptionName{"weights"}, " must be stored, fp8, int8 or ",
                        "int4", Got(BytesInQuotes(text)));
  }
  if (device.is_cuda) {
    return InvalidField(OptionName{"weights"}, " ", text, " needs ",
                        OptionName{"device"},
                        " cpu; a GPU has them in the type ", "of ",
                        OptionName{"dtype"}, ", or in fp8");
  }
  return text == "int8" ? WeightFormat::kInt8 : WeightFormat::kInt4;
}

absl::StatusOr<PreemptedPages> Resolver::ParsePreemptedPages() const {
  const std::string& text = options_.preempted_pages;
  if (text == "auto") return PreemptedPages::kAuto;
  if (text == "host") return PreemptedPages::kHost;
  if (text == "drop") return PreemptedPages::kDrop;
  return InvalidField(OptionName{"preempted_pages"},
                      " must be auto, host or drop", Got(BytesInQuotes(text)));
}

absl::Status Resolver::CheckOfCpu() const {
  if (options_.device == "auto") return absl::OkStatus();
  std::optional<int64_t> num_threads;
  if (options_.num_threads != 0) num_threads = options_.num_threads;
  const std::pair<const char*, std::optional<int64_t>> values[] = {
      {"num_threads", num_threads},
      {"max_candidates", options_.max_candidates},
      {"max_score_edits", options_.max_score_edits}};
  for (const auto& [field, value] : values) {
    if (!value.has_value()) continue;
    return InvalidField(OptionName{field}, " needs ", OptionName{"device"},
                        " cpu", Got(*value));
  }
  return absl::OkStatus();
}

absl::Status Resolver::CheckRange() const {
  if (options_.max_waiting < 0) {
    return InvalidField(OptionName{"max_waiting"}, " must be at least 0",
                        Got(options_.max_waiting));
  }
  if (options_.max_waiting_tokens < 0) {
    return InvalidField(OptionName{"max_waiting_tokens"},
                        " must be at least 0, no limit",
                        Got(options_.max_waiting_tokens));
  }
  if (options_.num_threads < 0) {
    return InvalidField(OptionName{"num_threads"},
                        " must be at least 0, one for each CPU",
                        Got(options_.num_threads));
  }
  if (!(options_.prefill_share >= 0 && options_.prefill_share <= 1)) {
    return InvalidField(OptionName{"prefill_share"}, " must be in [0, 1]",
                        Got(options_.prefill_share));
  }
  if (!(options_.step_timeout > absl::ZeroDuration())) {
    return InvalidField(OptionName{"step_timeout"}, " must be above 0",
                        Got(options_.step_timeout));
  }
  if (options_.host_cache_bytes.value_or(0) < 0) {
    return InvalidField(OptionName{"host_cache_bytes"}, " must be at least 0",
                        Got(*options_.host_cache_bytes));
  }
  const std::pair<const char*, std::optional<int64_t>> positive[] = {
      {"kv_cache_bytes", options_.kv_cache_bytes},
      {"page_size", options_.page_size},
      {"max_step_tokens", options_.max_step_tokens},
      {"max_beams", options_.max_beams}};
  for (const auto& [field, value] : positive) {
    if (value.value_or(1) >= 1) continue;
    return InvalidField(OptionName{field}, " must be at least 1", Got(*value));
  }
  return absl::OkStatus();
}

// Makes the checks that need no model.
absl::Status Resolver::CheckSpeculation() const {
  if (!options_.speculate.has_value()) return absl::OkStatus();
  const SpeculationParams& speculate = *options_.speculate;
  if (speculate.num_tokens < 1 || speculate.num_tokens > kMaxDraftTokens) {
    return InvalidField(OptionName{"speculate.num_tokens"}, " must be in [1, ",
                        kMaxDraftTokens, "]", Got(speculate.num_tokens));
  }
  if (speculate.method != SpeculationMethod::kDraft ||
      !options_.draft_model.empty()) {
    return absl::OkStatus();
  }
  return InvalidField(
      OptionName{"speculate.method"},
      " must be \"ngram\", \"suffix\", \"constraint\" or \"off\" "
      "without ",
      OptionName{"draft_model"}, Got("\"draft\""));
}

absl::StatusOr<BackendOptions> Resolver::Resolve() const {
  RETURN_IF_ERROR(CheckRange());
  RETURN_IF_ERROR(CheckSpeculation());
  BackendOptions resolved;
  ASSIGN_OR_RETURN(resolved.device, ChooseDevice());
  ASSIGN_OR_RETURN(resolved.dtype, ChooseDType(resolved.device));
  ASSIGN_OR_RETURN(resolved.weights,
                   ChooseWeights(resolved.device, resolved.dtype));
  const DeviceDefaults& defaults =
      resolved.device.is_cuda ? kCudaDefaults : kCpuDefaults;
  resolved.page_size = options_.page_size.value_or(kDefaultPageSize);
  resolved.kv_cache_bytes =
      options_.kv_cache_bytes.value_or(defaults.kv_cache_bytes);
  resolved.host_cache_bytes =
      options_.host_cache_bytes.value_or(defaults.host_cache_bytes);
  ASSIGN_OR_RETURN(resolved.preempted_pages, ParsePreemptedPages());
  resolved.requires_host_cache =
      options_.host_cache_bytes.has_value() ||
      resolved.preempted_pages == PreemptedPages::kHost;
  resolved.max_step_tokens =
      options_.max_step_tokens.value_or(defaults.max_step_tokens);
  if (resolved.device.is_cuda) RETURN_IF_ERROR(CheckOfCpu());
  if (resolved.device.is_cuda &&
      options_.max_beams.value_or(0) > resolved.max_step_tokens) {
    return InvalidField(OptionName{"max_beams"}, " must be at most ",
                        Limit(resolved.max_step_tokens), " (",
                        OptionName{"max_step_tokens"}, ")",
                        Got(*options_.max_beams));
  }
  resolved.max_beams = options_.max_beams.value_or(0);
  resolved.max_candidates =
      options_.max_candidates.value_or(resolved.max_candidates);
  resolved.max_score_edits =
      options_.max_score_edits.value_or(resolved.max_score_edits);
  resolved.num_threads =
      options_.num_threads > 0 ? options_.num_threads : NumUsableCpus();
  resolved.prefix_cache = options_.prefix_cache;
  resolved.prefill_share = options_.prefill_share;
  resolved.max_running = options_.max_running;
  resolved.max_waiting = options_.max_waiting;
  resolved.step_timeout = options_.step_timeout;
  resolved.draft_model = options_.draft_model;
  resolved.speculate = options_.speculate;
  if (!options_.draft_model.empty() && !options_.speculate) {
    resolved.speculate = {.method = SpeculationMethod::kDraft};
  }
  resolved.max_waiting_tokens = options_.max_waiting_tokens;
  resolved.load_progress = options_.load_progress;
  resolved.load_note = options_.load_note;
  resolved.loaded_weights = options_.loaded_weights;
  resolved.trace = options_.trace;
  return resolved;
}

}  // namespace

std::string NameOf(const DeviceChoice& device) {
  return device.is_cuda ? Concat("cuda:", device.ordinal) : "cpu";
}

absl::StatusOr<BackendOptions> Resolve(const GeneratorOptions& options) {
  return Resolver(options).Resolve();
}

absl::Status CheckPreemptedPages(const BackendOptions& options) {
  if (options.preempted_pages == PreemptedPages::kDrop &&
      options.requires_host_cache && options.host_cache_bytes > 0) {
    return InvalidField(
        OptionName{"host_cache_bytes"}, " must be 0, or unset, ", "with ",
        OptionName{"preempted_pages"}, " drop, which puts no page there");
  }
  if (options.preempted_pages != PreemptedPages::kHost ||
      options.host_cache_bytes > 0) {
    return absl::OkStatus();
  }
  return InvalidField(OptionName{"preempted_pages"},
                      " host needs host memory: ", "give ",
                      OptionName{"host_cache_bytes"},
                      ", which is 0 here, as much as pages may take");
}

EngineOptions EngineOptionsOf(const BackendOptions& options,
                              std::shared_ptr<const Tokenizer> tokenizer) {
  EngineOptions engine;
  engine.scheduler.max_running = options.max_running;
  engine.scheduler.max_step_tokens = options.max_step_tokens;
  engine.scheduler.prefill_share = options.prefill_share;
  engine.scheduler.prefix_cache = options.prefix_cache;
  engine.scheduler.preempted_pages = options.preempted_pages;
  engine.scheduler.trace = options.trace;
  engine.tokenizer = std::move(tokenizer);
  engine.step_timeout = options.step_timeout;
  engine.max_waiting_tokens = options.max_waiting_tokens;
  engine.speculate = options.speculate;
  return engine;
}

}  // namespace espalier
