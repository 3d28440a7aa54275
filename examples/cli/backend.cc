#include "examples/cli/backend.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "base/cpu_count.h"
#include "base/status.h"
#include "examples/cli/output.h"

namespace espalier::cli {
namespace {

absl::StatusOr<DType> ParseDType(const std::string& text) {
  if (text == "f32") return DType::kFloat32;
  if (text == "f16") return DType::kFloat16;
  if (text == "bf16") return DType::kBFloat16;
  return InvalidArgument("--dtype must be f32, f16 or bf16, got ",
                         InQuotes(text));
}

// Errors: kInvalidArgument naming an option that is given though the device
// decides.
absl::Status CheckOfCpu(const DeviceOptions& options) {
  const std::pair<const char*, bool> given[] = {
      {"--threads", options.num_threads.has_value()},
      {"--max-candidates", options.max_candidates.has_value()},
      {"--max-score-edits", options.max_score_edits.has_value()}};
  for (const auto& [name, is_given] : given) {
    if (is_given) return InvalidArgument(name, " is of --device cpu");
  }
  return absl::OkStatus();
}

absl::StatusOr<DType> ChooseDType(const DeviceOptions& options,
                                  const DeviceChoice& device) {
  if (options.dtype.empty()) {
    return (device.is_cuda ? kCudaDefaults : kCpuDefaults).dtype;
  }
  ASSIGN_OR_RETURN(const DType dtype, ParseDType(options.dtype));
  if (!device.is_cuda && dtype != DType::kFloat32) {
    return InvalidArgument("--dtype ", options.dtype,
                           " needs --device cuda; the CPU computes in f32");
  }
  return dtype;
}

}  // namespace

absl::StatusOr<DeviceChoice> ParseDevice(const std::string& text) {
  if (text == "cpu") return DeviceChoice{};
  if (text == "cuda") return DeviceChoice{.is_cuda = true};
  constexpr std::string_view kPrefix = "cuda:";
  DeviceChoice device{.is_cuda = true};
  const char* const begin = text.data() + kPrefix.size();
  const char* const end = text.data() + text.size();
  if (text.starts_with(kPrefix) && begin != end && *begin != '-') {
    const auto [rest, error] = std::from_chars(begin, end, device.ordinal);
    if (error == std::errc() && rest == end) return device;
  }
  return InvalidArgument(
      "--device must be cpu, cuda or cuda:N with N from 0, got ",
      InQuotes(text));
}

absl::StatusOr<BackendOptions> Resolve(const DeviceOptions& options) {
  BackendOptions resolved;
  ASSIGN_OR_RETURN(resolved.device, ParseDevice(options.device));
  ASSIGN_OR_RETURN(resolved.dtype, ChooseDType(options, resolved.device));
  const DeviceDefaults& defaults =
      resolved.device.is_cuda ? kCudaDefaults : kCpuDefaults;
  resolved.page_size = options.page_size;
  resolved.kv_cache_bytes =
      int64_t{options.kv_cache_mib.value_or(defaults.kv_cache_mib)} << 20;
  resolved.max_step_tokens =
      options.max_step_tokens.value_or(defaults.max_step_tokens);
  if (resolved.device.is_cuda) RETURN_IF_ERROR(CheckOfCpu(options));
  if (resolved.device.is_cuda &&
      options.max_beams.value_or(0) > resolved.max_step_tokens) {
    return InvalidArgument("--max-beams must be at most ",
                           resolved.max_step_tokens,
                           " (--max-step-tokens), got ", *options.max_beams);
  }
  resolved.max_beams = options.max_beams.value_or(0);
  resolved.max_candidates =
      options.max_candidates.value_or(resolved.max_candidates);
  resolved.max_score_edits =
      options.max_score_edits.value_or(resolved.max_score_edits);
  const int num_threads = options.num_threads.value_or(0);
  resolved.num_threads = num_threads > 0 ? num_threads : NumUsableCpus();
  return resolved;
}

absl::StatusOr<std::unique_ptr<Backend>> Backend::Load(
    const std::string& directory, const BackendOptions& options) {
  return options.device.is_cuda ? LoadCudaBackend(directory, options)
                                : LoadCpuBackend(directory, options);
}

}  // namespace espalier::cli
