#include "espalier/open_request.h"

#include <new>
#include <utility>

#include "base/status.h"
#include "espalier/generator_call.h"
#include "espalier/model_text.h"

namespace espalier {
namespace {

absl::StatusOr<OpenRequest> OpenAt(GeneratorCore::Place place,
                                   const GeneratorCore& core,
                                   GenerationRequest from) {
  NamedValues defaults;
  ASSIGN_OR_RETURN(Request request,
                   core.MakeRequest(std::move(from), &defaults));
  GenerationParams params = OnlyOfText(request.params);
  return OpenRequest{std::move(place),
                     std::move(request),
                     {std::move(params), std::move(defaults), core.tokenizer(),
                      core.advice()}};
}

}  // namespace

absl::StatusOr<Generation> Finisher::operator()(
    absl::StatusOr<Result> result) const try {
  return MakeGeneration(std::move(result), params, defaults, tokenizer, advice);
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GenerationRequest from) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place, core->TakePlace());
  return OpenAt(std::move(place), *core, std::move(from));
}

absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place,
                   core->WaitForPlace(options, deadline));
  return OpenAt(std::move(place), *core, std::move(from));
}

}  // namespace espalier
