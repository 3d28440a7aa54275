// OpenRequest: a user's request on its way to the engine, with everything that
// is needed to convert its result.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "espalier/generator_core.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Errors: as GeneratorCore::MakeRequest.
absl::StatusOr<EngineRequest> Prepare(const GeneratorCore& core,
                                      GenerationRequest from);

// Errors: as GeneratorCore::MakeScoring.
absl::StatusOr<EngineRequest> Prepare(const GeneratorCore& core,
                                      ScoreRequest from);

struct OpenRequest {
  GeneratorCore::Place place;
  EngineRequest prepared;
};

// Errors: as GeneratorCore::TakePlace, and MakeRequest or MakeScoring.
absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GenerationRequest from);
absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 ScoreRequest from);
// As Open, but waits for a place.
absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline);

}  // namespace espalier
