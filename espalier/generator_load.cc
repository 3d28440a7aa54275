// Makes generators from a model directory, or from a model.
#include <memory>
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "espalier/backend.h"
#include "espalier/generator.h"
#include "espalier/generator_core.h"
#include "espalier/model_defaults.h"
#include "espalier/model_text.h"
#include "executor/host/model_executor.h"
#include "model/model_directory.h"

namespace espalier {
namespace {

// Checks that no option is set that a user's own model determines.
absl::Status CheckUnset(const GeneratorOptions& options) {
  if (options.device != "cpu") {
    return InvalidArgument("device must be cpu for a model of your own, got ",
                           options.device);
  }
  const std::pair<const char*, bool> given[] = {
      {"dtype", !options.dtype.empty()},
      {"weights", options.weights != "stored"},
      {"kv_cache_bytes", options.kv_cache_bytes.has_value()},
      {"host_cache_bytes", options.host_cache_bytes.has_value()},
      {"page_size", options.page_size.has_value()},
      {"draft_model", !options.draft_model.empty()},
      {"load_progress", options.load_progress != nullptr},
      {"load_note", options.load_note != nullptr},
      {"loaded_weights", options.loaded_weights != nullptr}};
  for (const auto& [field, is_given] : given) {
    if (is_given) {
      return InvalidField(OptionName{field},
                          " must be unset: a model of your own decides it");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Generator> Generator::Load(const std::string& directory,
                                          const GeneratorOptions& options) {
  ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
  RETURN_IF_ERROR(CheckPreemptedPages(resolved));
  RETURN_IF_ERROR(CheckModelDirectory(directory));
  ASSIGN_OR_RETURN(GenerationDefaults defaults,
                   LoadModelDefaults(options.generation_config, directory));
  ASSIGN_OR_RETURN(ModelText text, ModelText::Load(directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   Backend::Load(directory, resolved));
  RETURN_IF_ERROR(FitDefaults(options.generation_config,
                              backend->steps()->description(),
                              text.tokenizer != nullptr, &defaults));
  EngineOptions engine = EngineOptionsOf(resolved, text.tokenizer);
  engine.max_waiting = resolved.max_waiting;
  ASSIGN_OR_RETURN(
      auto core, GeneratorCore::Create(
                     {backend->steps(), std::move(text), engine,
                      std::move(defaults), resolved.max_waiting,
                      MessageParts(", or raise ", OptionName{"kv_cache_bytes"}),
                      directory, backend->weights()}));
  return Generator(std::move(core));
}

absl::StatusOr<Generator> Generator::Create(
    std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
    const GeneratorOptions& options) {
  RETURN_IF_ERROR(CheckUnset(options));
  ASSIGN_OR_RETURN(GenerationDefaults defaults,
                   LoadModelDefaults(options.generation_config, ""));
  ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
  ASSIGN_OR_RETURN(auto threads, ThreadPool::Create(resolved.num_threads));
  ASSIGN_OR_RETURN(
      auto steps,
      ModelExecutor::Create(std::move(model), std::move(threads),
                            {.max_beams = resolved.max_beams,
                             .max_candidates = resolved.max_candidates,
                             .max_score_edits = resolved.max_score_edits}));
  RETURN_IF_ERROR(FitDefaults(options.generation_config, steps->description(),
                              tokenizer != nullptr, &defaults));
  EngineOptions engine = EngineOptionsOf(resolved, tokenizer);
  engine.max_waiting = resolved.max_waiting;
  ASSIGN_OR_RETURN(
      auto core, GeneratorCore::Create(
                     {std::move(steps), ModelText{std::move(tokenizer)}, engine,
                      std::move(defaults), resolved.max_waiting}));
  return Generator(std::move(core));
}

}  // namespace espalier
