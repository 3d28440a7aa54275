#include "exec_request/trace.h"

namespace espalier {

std::string_view Name(CandidateFate fate) {
  switch (fate) {
    case CandidateFate::kKept:
      return "kept";
    case CandidateFate::kCut:
      return "cut";
    case CandidateFate::kFinished:
      return "finished";
  }
  return "";
}

namespace {

std::string_view StrategyName(const GenerationParams& params) {
  return params.num_beams > 1 ? "beams" : "greedy";
}

json::value Shown(EarlyStopping early_stopping) {
  if (early_stopping == EarlyStopping::kNever) return "never";
  return early_stopping == EarlyStopping::kTrue;
}

}  // namespace

TraceRequest DescribeRequest(RequestId id, const Request& request) {
  const GenerationParams& params = request.params;
  TraceRequest event{.request = id,
                     .strategy = std::string(StrategyName(params)),
                     .prompt_tokens = request.prompt_tokens};
  event.params["num_beams"] = params.num_beams;
  event.params["num_return_sequences"] = params.num_return_sequences;
  if (params.num_beams > 1) {
    event.params["length_penalty"] = params.length_penalty;
    event.params["early_stopping"] = Shown(params.early_stopping);
  }
  event.params["max_new_tokens"] = *params.max_new_tokens;
  return event;
}

RequestId RequestOf(const TraceEvent& event) {
  return std::visit([](const auto& e) { return e.request; }, event);
}

}  // namespace espalier
