// Checks that validation of a request's options is written in. Each names the
// field and the value in its error, kInvalidArgument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/field_error.h"
#include "base/model_description.h"
#include "base/status.h"

namespace espalier {

// More beams or samples than any use has, few enough that candidates per step
// fit an int.
inline constexpr int64_t kMaxSequences = 1 << 20;

// Why a limit of StepLimits is one.
inline constexpr Prose kPerStep = " (what a step has room for)";

absl::Status CheckAtLeast(std::string_view field, int64_t value, int64_t low);

// Checks that `value` is in [low, high]; `why_high` explains `high`, or is
// empty.
absl::Status CheckRange(std::string_view field, int64_t value, int64_t low,
                        int64_t high, Prose why_high = "");

// Checks that a text is UTF-8 of at most `max_bytes`.
absl::Status CheckName(std::string_view field, const std::string& name,
                       int64_t max_bytes);

// Checks that a number is finite when it is rounded to float32.
absl::Status CheckFloat32(std::string_view field, double value);

// Checks that every id is in [0, vocab_size).
template <typename Ids>
absl::Status CheckTokens(std::string_view field, const Ids& ids,
                         int vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return InvalidField(FieldName{field}, "[", i,
                        "] must be a token id in [0, ", vocab_size, ")",
                        Got(ids[i]));
  }
  return absl::OkStatus();
}

// Checks that none of `ids`, from `first` on, is the model's padding
// (EncoderDescription::token_without_position).
template <typename Ids>
absl::Status CheckHavePositions(const ModelDescription& model,
                                std::string_view field, const Ids& ids,
                                size_t first = 0) {
  if (!model.encoder || !model.encoder->token_without_position) {
    return absl::OkStatus();
  }
  for (size_t i = first; i < ids.size(); ++i) {
    if (ids[i] != *model.encoder->token_without_position) continue;
    return InvalidField(FieldName{field}, "[", i,
                        "] must not be the model's padding, which has no "
                        "position",
                        Got(ids[i]));
  }
  return absl::OkStatus();
}

// Checks that an option without a meaning here is off: "patience must be 1
// without early_stopping true, got 2".
template <typename T>
absl::Status CheckOff(std::string_view field, const T& value, const T& off,
                      Prose where) {
  if (value == off) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must be ", off, " ", where,
                      Got(value));
}

}  // namespace espalier
