#include "espalier/open_request.h"

#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

template <typename From>
absl::StatusOr<OpenRequest> OpenAt(GeneratorCore::Place place,
                                   const GeneratorCore& core, From from) {
  ASSIGN_OR_RETURN(EngineRequest prepared, core.Prepare(std::move(from)));
  return OpenRequest{std::move(place), std::move(prepared)};
}

}  // namespace

absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GenerationRequest from) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place, core->TakePlace());
  return OpenAt(std::move(place), *core, std::move(from));
}

absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 ScoreRequest from) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place, core->TakePlace());
  return OpenAt(std::move(place), *core, std::move(from));
}

absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, Request from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place,
                   core->WaitForPlace(options, deadline));
  ASSIGN_OR_RETURN(EngineRequest prepared,
                   core->Prepare(std::move(from), /*takes_defaults=*/false));
  return OpenRequest{std::move(place), std::move(prepared)};
}

absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place,
                   core->WaitForPlace(options, deadline));
  return OpenAt(std::move(place), *core, std::move(from));
}

}  // namespace espalier
