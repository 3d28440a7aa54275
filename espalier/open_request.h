// OpenRequest: a request of a generator's user on its way to the engine, with
// all that its answer takes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "espalier/generator_core.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/tokenizer.h"

namespace espalier {

// What makes the answer to a call of what the engine gave. Does not throw.
struct Finisher {
  absl::StatusOr<Generation> operator()(absl::StatusOr<Result> result) const;

  GenerationParams params;  // OnlyOfText
  NamedValues defaults;     // that they have taken
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string advice;
};

struct OpenRequest {
  GeneratorCore::Place place;
  Request request;
  Finisher finisher;
};

// Errors: as GeneratorCore::TakePlace and MakeRequest.
absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GenerationRequest from);
// The same, but waits for a place.
absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline);

}  // namespace espalier
