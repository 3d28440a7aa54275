// Backend: what the steps run on: a model with its executor, on the CPU or on
// a CUDA device.
//
//   ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
//   ASSIGN_OR_RETURN(auto backend, Backend::Load(directory, resolved));
//   ASSIGN_OR_RETURN(auto engine, Engine::Create(context.get_executor(),
//                                                backend->steps(), ...));
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "exec_request/step_executor.h"
#include "executor/host/model_executor.h"
#include "kernels/matmul/packed_matrix.h"

namespace espalier::cli {

// What a user chooses.
struct DeviceOptions {
  std::string device = "cpu";       // "cpu", "cuda", or "cuda:1" for an ordinal
  std::string dtype;                // "f32", "f16", "bf16"; empty: by device
  int page_size = 16;               // tokens
  std::optional<int> kv_cache_mib;  // unset: by device
  std::optional<int> max_step_tokens;  // unset: by device
  // Beams and samples that run together; unset: by what their logits take.
  std::optional<int> max_beams;
  // Of the CPU, and an error elsewhere; 0 is one for each CPU it may use.
  std::optional<int> num_threads;
  // What a step may take of the CPU (ModelExecutorOptions); unset: its
  // defaults. An error elsewhere, where the room that was taken decides.
  std::optional<int64_t> max_candidates;
  std::optional<int64_t> max_score_edits;
};

// What a device gets where its user leaves it open.
struct DeviceDefaults {
  DType dtype;
  int kv_cache_mib;
  // Fills the device's multipliers; on the CPU it also lets the activations of
  // small models stay in the caches.
  int max_step_tokens;
};
inline constexpr DeviceDefaults kCpuDefaults = {DType::kFloat32, 1024, 128};
inline constexpr DeviceDefaults kCudaDefaults = {DType::kBFloat16, 4096, 2048};

// A device as --device names it.
struct DeviceChoice {
  bool is_cuda = false;
  int ordinal = 0;
};
// Errors: kInvalidArgument quoting the text.
absl::StatusOr<DeviceChoice> ParseDevice(const std::string& text);

// The options with nothing left open.
struct BackendOptions {
  DeviceChoice device;
  DType dtype = DType::kFloat32;
  int page_size = 16;          // tokens
  int64_t kv_cache_bytes = 0;  // on the CPU touched only as needed
  int max_step_tokens = 0;
  int max_beams = 0;  // 0: by what their logits take
  // What a step may take of the CPU.
  int64_t max_candidates = ModelExecutorOptions().max_candidates;
  int64_t max_score_edits = ModelExecutorOptions().max_score_edits;
  int num_threads = 1;  // of the CPU
};
// Errors: kInvalidArgument naming the option.
absl::StatusOr<BackendOptions> Resolve(const DeviceOptions& options);

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

// Backend::Load of either kind. A build without ESPALIER_CUDA has
// no_cuda_backend.cc, which refuses and says how to build.
absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(
    const std::string& directory, const BackendOptions& options);
absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string& directory, const BackendOptions& options);

}  // namespace espalier::cli
