#include "request/speculation_params.h"

namespace espalier {

std::string_view NameOf(SpeculationMethod method) {
  switch (method) {
    case SpeculationMethod::kNone:
      return "off";
    case SpeculationMethod::kNgram:
      return "ngram";
    case SpeculationMethod::kSuffix:
      return "suffix";
    case SpeculationMethod::kConstraint:
      return "constraint";
    case SpeculationMethod::kDraft:
      return "draft";
  }
  return "";
}

std::string_view NameOf(SpeculationMode mode) {
  switch (mode) {
    case SpeculationMode::kRejection:
      return "rejection";
    case SpeculationMode::kCoupled:
      return "coupled";
  }
  return "";
}

}  // namespace espalier
