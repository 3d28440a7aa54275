#include "speculate/drafter.h"

#include "speculate/ngram_drafter.h"
#include "speculate/suffix_drafter.h"

namespace espalier {

std::unique_ptr<Drafter> MakeDrafter(const SpeculationParams& params) {
  switch (params.method) {
    case SpeculationMethod::kNgram:
      return std::make_unique<NgramDrafter>();
    case SpeculationMethod::kSuffix:
      return std::make_unique<SuffixDrafter>();
    case SpeculationMethod::kNone:
    case SpeculationMethod::kConstraint:
    case SpeculationMethod::kDraft:
      return nullptr;
  }
  return nullptr;
}

}  // namespace espalier
