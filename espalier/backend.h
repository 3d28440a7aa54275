// Backend: what the steps run on: a model with its executor, on the CPU or on
// a CUDA device.
//
//   ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
//   RETURN_IF_ERROR(CheckModelDirectory(directory));
//   ASSIGN_OR_RETURN(const ModelText text, ModelText::Load(directory));
//   ASSIGN_OR_RETURN(auto backend, Backend::Load(directory, resolved));
//   RETURN_IF_ERROR(CheckFits(text.tokenizer.get(), *backend->steps()));
//   ASSIGN_OR_RETURN(
//       auto engine,
//       Engine::Create(context.get_executor(), backend->steps(),
//                      EngineOptionsOf(resolved, text.tokenizer)));
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "batcher/engine_options.h"
#include "espalier/generator_options.h"
#include "exec_request/step_executor.h"
#include "executor/host/model_executor.h"
#include "kernels/matmul/weight_format.h"
#include "model/load_progress.h"
#include "text/tokenizer.h"

namespace espalier {

// What a device gets where its user leaves it open.
struct DeviceDefaults {
  DType dtype;
  int64_t kv_cache_bytes;
  // A quarter of that on a GPU: what is away is a part of what runs. On the CPU
  // key/value memory is as large as one likes. Where the host cannot pin so
  // much there is less, or none.
  int64_t host_cache_bytes;
  // Fills the device's multipliers; on the CPU it also lets the activations of
  // small models stay in the caches.
  int max_step_tokens;
};
inline constexpr DeviceDefaults kCpuDefaults = {DType::kFloat32,
                                                int64_t{1} << 30, 0, 128};
inline constexpr DeviceDefaults kCudaDefaults = {
    DType::kBFloat16, int64_t{4} << 30, int64_t{1} << 30, 2048};
inline constexpr int kDefaultPageSize = 16;  // tokens

// A device as options name it.
struct DeviceChoice {
  bool is_cuda = false;
  int ordinal = 0;
};

// GeneratorOptions with nothing left open.
struct BackendOptions {
  DeviceChoice device;
  DType dtype = DType::kFloat32;
  WeightFormat weights = WeightFormat::kAsStored;
  int page_size = kDefaultPageSize;  // tokens
  int64_t kv_cache_bytes = 0;        // on the CPU touched only as needed
  int64_t host_cache_bytes = 0;      // as well
  // Whether it was given: a default that the machine has no room for is not an
  // error.
  bool requires_host_cache = false;
  PreemptedPages preempted_pages = PreemptedPages::kAuto;
  int max_step_tokens = 0;
  int max_beams = 0;  // 0: by what their logits take
  // What a step may take of the CPU.
  int64_t max_candidates = ModelExecutorOptions().max_candidates;
  int64_t max_score_edits = ModelExecutorOptions().max_score_edits;
  int num_threads = 1;  // of the CPU
  bool prefix_cache = SchedulerOptions().prefix_cache;
  double prefill_share = SchedulerOptions().prefill_share;
  int max_running = 1;
  int max_waiting = 0;
  absl::Duration step_timeout = absl::InfiniteDuration();
  std::string draft_model = {};  // a directory; empty: none
  // With a draft model set.
  std::optional<SpeculationParams> speculate = {};
  int64_t max_waiting_tokens = 0;
  LoadProgress load_progress = nullptr;  // of the CPU
  std::shared_ptr<TraceSink> trace = nullptr;
};

// What an option is called in errors, by its field in GeneratorOptions.
using OptionNamer = std::string (*)(std::string_view field);
std::string FieldName(std::string_view field);

// Errors: kInvalidArgument naming the option and its value.
absl::StatusOr<BackendOptions> Resolve(const GeneratorOptions& options,
                                       OptionNamer name = FieldName);

// Of a model that has no host memory for pages but what host_cache_bytes says.
// Errors: kInvalidArgument where all preempted pages have to go there and there
// is none, or where there is some and none is to go there.
absl::Status CheckPreemptedPages(const BackendOptions& options,
                                 OptionNamer name = FieldName);

EngineOptions EngineOptionsOf(const BackendOptions& options,
                              std::shared_ptr<const Tokenizer> tokenizer);

// Errors: kNotFound, or kInvalidArgument, saying why there is no model.
absl::Status CheckModelDirectory(const std::string& directory);
// Errors: as Tokenizer::CheckFits; null fits.
absl::Status CheckFits(const Tokenizer* tokenizer, const StepExecutor& steps);

// Whether a model in `draft` can draft for one in `directory`: their
// tokenizers, if both have one, spell every token alike. Errors:
// kInvalidArgument naming the first token that differs; and as ModelText::Load.
absl::Status CheckSameVocabulary(const std::string& directory,
                                 const std::string& draft);

class Backend {
 public:
  // Loads a model directory.
  // Errors: naming the file or field that is wrong, or what the machine or
  // this build lacks.
  static absl::StatusOr<std::unique_ptr<Backend>> Load(
      const std::string& directory, const BackendOptions& options);
  virtual ~Backend() = default;

  virtual std::shared_ptr<StepExecutor> steps() = 0;
  // What the device did, for people: some lines, or none.
  virtual std::string FormatFigures() const { return ""; }
};

// Backend::Load of either kind, and whether there is a GPU to run on. A build
// without ESPALIER_CUDA has no_cuda_backend.cc, which refuses and says how to
// build.
absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(
    const std::string& directory, const BackendOptions& options);
absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string& directory, const BackendOptions& options);
bool HasCudaDevice(int ordinal);
// Whether this build is with ESPALIER_CUDA.
bool IsBuiltWithCuda();

}  // namespace espalier
