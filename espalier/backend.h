// Backend: what the steps run on: a model with its executor, on the CPU or on
// a CUDA device.
//
//   ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
//   RETURN_IF_ERROR(CheckModelDirectory(directory));
//   ASSIGN_OR_RETURN(const ModelText text, ModelText::Load(directory));
//   ASSIGN_OR_RETURN(auto backend, Backend::Load(directory, resolved));
//   ASSIGN_OR_RETURN(
//       auto engine,
//       Engine::Create(context.get_executor(), backend->steps(),
//                      EngineOptionsOf(resolved, text.tokenizer)));
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "espalier/backend_options.h"
#include "exec_request/step_executor.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Whether the config.json of a model tells of an encoder; false where it cannot
// be read, of which loading the model says why.
bool HasEncoder(const std::string& directory);

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
