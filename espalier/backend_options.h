// BackendOptions: the resolved and validated options of a generator, the engine
// options derived from them, and the defaults of each device.
//
//   ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
//
// Plain values and functions of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "batcher/engine_options.h"
#include "espalier/generator_options.h"
#include "executor/host/model_executor.h"
#include "kernels/matmul/weight_format.h"
#include "model/load_progress.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Defaults of a device for options that are unset.
struct DeviceDefaults {
  DType dtype;
  int64_t kv_cache_bytes;
  // A quarter of kv_cache_bytes on a GPU, as only a part of the running
  // requests is preempted. On the CPU the key/value memory itself can be large.
  // If the host cannot pin this much, less is used, or none.
  int64_t host_cache_bytes;
  // Enough rows to use the device's multipliers fully; on the CPU few enough
  // that the activations of small models stay in the caches.
  int max_step_tokens;
};
inline constexpr DeviceDefaults kCpuDefaults = {DType::kFloat32,
                                                int64_t{1} << 30, 0, 128};
inline constexpr DeviceDefaults kCudaDefaults = {
    DType::kBFloat16, int64_t{4} << 30, int64_t{1} << 30, 2048};
inline constexpr int kDefaultPageSize = 16;  // tokens

// A device, as options name it.
struct DeviceChoice {
  bool is_cuda = false;
  int ordinal = 0;
};
std::string NameOf(const DeviceChoice& device);  // "cpu", "cuda:0"

class ModelWeights;  // espalier/backend.h

// GeneratorOptions with every option resolved.
struct BackendOptions {
  DeviceChoice device;
  DType dtype = DType::kFloat32;
  WeightFormat weights = WeightFormat::kAsStored;
  int page_size = kDefaultPageSize;  // tokens
  int64_t kv_cache_bytes = 0;        // on the CPU touched only as needed
  int64_t host_cache_bytes = 0;      // likewise
  // host_cache_bytes was given; a default that the machine has no room for is
  // not an error.
  bool requires_host_cache = false;
  PreemptedPages preempted_pages = PreemptedPages::kAuto;
  int max_step_tokens = 0;
  int max_beams = 0;  // 0: by what their logits take
  // Limits on the work of a step on the CPU.
  int64_t max_candidates = ModelExecutorOptions().max_candidates;
  int64_t max_score_edits = ModelExecutorOptions().max_score_edits;
  int num_threads = 1;  // CPU threads
  bool prefix_cache = SchedulerOptions().prefix_cache;
  double prefill_share = SchedulerOptions().prefill_share;
  int max_running = 1;
  int max_waiting = 0;
  absl::Duration step_timeout = absl::InfiniteDuration();
  std::string draft_model = {};  // a directory; empty: none
  // With a draft model set.
  std::optional<SpeculationParams> speculate = {};
  int64_t max_waiting_tokens = 0;
  LoadProgress load_progress = nullptr;                            // CPU only
  std::function<void(std::string_view note)> load_note = nullptr;  // GPU only
  std::shared_ptr<const ModelWeights> loaded_weights = nullptr;
  std::shared_ptr<TraceSink> trace = nullptr;
};

// Errors: kInvalidArgument naming the option and its value, as those of the
// others below (base/field_error.h).
absl::StatusOr<BackendOptions> Resolve(const GeneratorOptions& options);

// Checks a model whose only host memory for pages is host_cache_bytes.
// Errors: kInvalidArgument if all preempted pages must go to host memory and
// there is none, or if there is some and none may go there.
absl::Status CheckPreemptedPages(const BackendOptions& options);

EngineOptions EngineOptionsOf(const BackendOptions& options,
                              std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace espalier
