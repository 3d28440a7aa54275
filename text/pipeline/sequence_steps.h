// The steps of a normalizer, pre-tokenizer, decoder or post-processor of a
// tokenizer.json, as its "Sequence" lists them.
//
// Each step reads all of a text, and files need not be trusted: a part has 64
// steps at most, far more than known tokenizers have.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/pipeline/json_fields.h"

namespace espalier {

inline constexpr size_t kMaxSequenceSteps = 64;

// The list `field` of a sequence. `*num_steps` is how many the part's sequences
// have listed so far.
// Errors: kInvalidArgument if it is no list, or the steps are too many.
inline absl::StatusOr<const json::array*> ReadSequenceSteps(
    const JsonFields& sequence, std::string_view field, size_t* num_steps) {
  ASSIGN_OR_RETURN(const json::array* list, sequence.Array(field));
  *num_steps += list->size();
  if (*num_steps <= kMaxSequenceSteps) return list;
  return InvalidArgument(
      sequence.Place(field), " must have at most ", kMaxSequenceSteps,
      " steps, with those of sequences around it, got ", *num_steps);
}

}  // namespace espalier
