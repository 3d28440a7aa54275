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

RequestId RequestOf(const TraceEvent& event) {
  return std::visit([](const auto& e) { return e.request; }, event);
}

}  // namespace espalier
