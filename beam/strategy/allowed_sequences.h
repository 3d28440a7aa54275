// The constraint of a request's `allowed_sequences`.
//
// Thread safety: functions without state.
#pragma once

#include <memory>

#include "constrain/item_constraint.h"
#include "request/generation_params.h"

namespace espalier {

// Returns null if the request has none. Drops sequences that min_new_tokens
// rules out, because they are too short or contain an ending id too early.
// Requests that share a list share the catalogue. `params` as ValidateParams
// leaves them.
std::shared_ptr<const ItemConstraint> AllowedSequencesOf(
    const GenerationParams& params);

}  // namespace espalier
