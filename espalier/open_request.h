// OpenRequest: a user's request with its place among the open ones.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "espalier/generator_core.h"

namespace espalier {

struct OpenRequest {
  GeneratorCore::Place place;
  EngineRequest prepared;
};

// Errors: as GeneratorCore::TakePlace and Prepare.
absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GenerationRequest from);
absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 ScoreRequest from);
// As Open, but waits for a place.
absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline);
// Without the defaults of generation_config.json.
absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, Request from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline);

}  // namespace espalier
