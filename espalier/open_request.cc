#include "espalier/open_request.h"

#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "base/status.h"
#include "espalier/generator_call.h"
#include "espalier/model_text.h"

namespace espalier {
namespace {

template <typename From>
absl::StatusOr<OpenRequest> OpenAt(GeneratorCore::Place place,
                                   const GeneratorCore& core, From from) {
  ASSIGN_OR_RETURN(EngineRequest prepared, Prepare(core, std::move(from)));
  return OpenRequest{std::move(place), std::move(prepared)};
}

// Makes the answer to a call of the engine's result. Does not throw.
struct Finisher {
  absl::StatusOr<Generation> operator()(absl::StatusOr<Result> result) const
      try {
    absl::StatusOr<Generation> answer =
        MakeGeneration(std::move(result), form, defaults, advice);
    if (answer.ok()) return answer;
    return NameDefaults(answer.status(), defaults, origin);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  TextForm form;
  NamedValues defaults;  // that its params have taken
  std::string origin;    // source of the defaults
  std::string advice;
};

// Adds the tokens that MakeScoring took off. Does not throw.
struct ScoreFinisher {
  absl::StatusOr<Generation> operator()(absl::StatusOr<Result> result) const
      try {
    absl::StatusOr<Generation> answer = finish(std::move(result));
    if (!answer.ok()) return answer;
    for (const size_t i : with_forced_bos) {
      ContinuationScore& score = answer->continuations.at(i);
      score.tokens.insert(score.tokens.begin(), forced_bos);
      score.log_probs.insert(score.log_probs.begin(), 0);
      score.ranks.insert(score.ranks.begin(), 1);
    }
    return answer;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  std::function<absl::StatusOr<Generation>(absl::StatusOr<Result>)> finish;
  TokenId forced_bos;
  std::vector<size_t> with_forced_bos;
};

EngineRequest MakeEngineRequest(const GeneratorCore& core, Request request,
                                NamedValues defaults) {
  TextForm form = TextForm::Of(request, core.description(), core.tokenizer());
  std::string origin = defaults.empty() ? "" : core.defaults().path;
  return EngineRequest{std::move(request),
                       Finisher{std::move(form), std::move(defaults),
                                std::move(origin), core.advice()}};
}

}  // namespace

absl::StatusOr<EngineRequest> Prepare(const GeneratorCore& core,
                                      GenerationRequest from) {
  NamedValues defaults;
  ASSIGN_OR_RETURN(Request request,
                   core.MakeRequest(std::move(from), &defaults));
  return MakeEngineRequest(core, std::move(request), std::move(defaults));
}

absl::StatusOr<EngineRequest> Prepare(const GeneratorCore& core,
                                      ScoreRequest from) {
  NamedValues defaults;
  ASSIGN_OR_RETURN(GeneratorCore::Scoring scoring,
                   core.MakeScoring(std::move(from), &defaults));
  EngineRequest request =
      MakeEngineRequest(core, std::move(scoring.request), std::move(defaults));
  if (scoring.with_forced_bos.empty()) return request;
  request.finish = ScoreFinisher{std::move(request.finish), *scoring.forced_bos,
                                 std::move(scoring.with_forced_bos)};
  return request;
}

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
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place,
                   core->WaitForPlace(options, deadline));
  return OpenAt(std::move(place), *core, std::move(from));
}

}  // namespace espalier
