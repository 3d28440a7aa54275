// Backend: a model with its step executor, on the CPU or on a CUDA device.
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

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "constrain/item_trie_builder.h"
#include "espalier/backend_options.h"
#include "exec_request/step_executor.h"
#include "model/weight_update.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// True if the config.json of a model describes an encoder; false if it cannot
// be read. Loading the model reports that error.
bool HasEncoder(const std::string& directory);

// Checks that a model in `draft` can draft for one in `directory`: their
// tokenizers, if both have one, spell every token alike. Errors:
// kInvalidArgument naming the first token that differs; and as ModelText::Load.
absl::Status CheckSameVocabulary(const std::string& directory,
                                 const std::string& draft);

// Weights of a loaded model and of its draft model. Immutable.
class ModelWeights {
 public:
  ModelWeights(std::string directory, const BackendOptions& options);
  virtual ~ModelWeights() = default;

  // Checks that a backend of these options can use the weights.
  // Errors: kInvalidArgument naming the option that differs, and both values.
  absl::Status CheckFit(const std::string& directory,
                        const BackendOptions& options) const;

 private:
  const std::string directory_;
  const DeviceChoice device_;
  const DType dtype_;
  const WeightFormat format_;
  const std::string draft_model_;
};

// Gives the model of a backend other weights. It may outlive the backend.
class WeightUpdater {
 public:
  using Apply = absl::AnyInvocable<absl::Status() &&>;

  virtual ~WeightUpdater() = default;

  // Reads and checks the weights, which takes as long as loading, while the
  // model may run. One thread at a time; throws std::bad_alloc. Returns what
  // gives them to the model, in which no step may run meanwhile; after its
  // error the model has parts of both.
  // Errors: as UpdatedCheckpoint and FindTransformerTensors;
  // kResourceExhausted.
  virtual absl::StatusOr<Apply> Prepare(const WeightUpdate& update) = 0;
};

class Backend {
 public:
  // Loads a model directory, or makes a backend of options.loaded_weights.
  // Errors: naming the file or field that is wrong, or what the machine or
  // this build lacks.
  static absl::StatusOr<std::unique_ptr<Backend>> Load(
      const std::string& directory, const BackendOptions& options);
  virtual ~Backend() = default;

  virtual std::shared_ptr<StepExecutor> steps() = 0;
  // For other backends.
  virtual std::shared_ptr<const ModelWeights> weights() const = 0;
  virtual std::shared_ptr<WeightUpdater> weight_updater() = 0;
  // Returns what builds tries of catalogues, as BuildItemTrie does. Any thread
  // may call it, also after this backend.
  virtual ItemTrieBuilder item_trie_builder() const { return BuildItemTrie; }
  // Returns device statistics as text; may be empty.
  virtual std::string FormatFigures() const { return ""; }
};

// Backend::Load for each device, and a check for a usable GPU. A build without
// ESPALIER_CUDA compiles no_cuda_backend.cc, which fails and says how to build.
absl::StatusOr<std::unique_ptr<Backend>> LoadCpuBackend(
    const std::string& directory, const BackendOptions& options);
absl::StatusOr<std::unique_ptr<Backend>> LoadCudaBackend(
    const std::string& directory, const BackendOptions& options);
bool HasCudaDevice(int ordinal);
// True if this build has ESPALIER_CUDA.
bool IsBuiltWithCuda();

}  // namespace espalier
