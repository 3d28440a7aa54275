#include "beam/strategy/decode_strategy.h"

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier {
namespace {

// Returns the options in use that can mask tokens, as parts of a message.
std::vector<std::string> BanningOptions(const GenerationParams& params) {
  std::vector<std::string> names;
  const auto add = [&](bool in_use, const char* name) {
    if (in_use) names.push_back(MessageParts(FieldName{name}));
  };
  add(params.allowed_token_ids.has_value(), "allowed_token_ids");
  add(params.constraint.has_value(), "constraint");
  add(params.allowed_sequences.has_value(), "allowed_sequences");
  add(!params.suppress_tokens.empty(), "suppress_tokens");
  add(!params.bad_words_ids.empty(), "bad_words_ids");
  // These have become ids (request/bad_words.h).
  if (!params.bad_words_ids.empty()) {
    names.back() += MessageParts(" (or `bad_words`)");
  }
  add(params.no_repeat_ngram_size > 0, "no_repeat_ngram_size");
  add(params.min_new_tokens > 0, "min_new_tokens");
  return names;
}

std::string WhereNoToken(std::optional<int> num_generated) {
  if (!num_generated.has_value()) return "for a sample";
  return Concat("after ", Pluralize(*num_generated, "generated token"));
}

}  // namespace

int DecodeStrategy::max_draft_tokens(int) const {
  CHECK(supports_drafts()) << "the strategy verifies no drafts";
  return 0;
}

std::vector<std::vector<TokenId>> DecodeStrategy::CutDrafts(
    std::vector<std::vector<TokenId>> drafts, bool) const {
  CHECK(supports_drafts()) << "the strategy verifies no drafts";
  return drafts;
}

void DecodeStrategy::DescribeDrafts(std::vector<std::vector<TokenId>>,
                                    PlanSelection*) const {
  CHECK(supports_drafts()) << "the strategy verifies no drafts";
}

absl::Status ExplainNoToken(const absl::Status& status,
                            const GenerationParams& params) {
  if (status.code() != absl::StatusCode::kFailedPrecondition) return status;
  std::vector<std::string> names = BanningOptions(params);
  if (names.empty()) {
    return Internal(ToStd(status.message()),
                    ": the model gives every token probability 0, or NaN");
  }
  return AppendParts(
      status, ": ", JoinWithAnd(names),
      names.size() == 1 ? " leaves" : " leave",
      " none to which the model gives a chance, unless its logits are NaN");
}

absl::Status AllTokensMasked(std::optional<int> num_generated) {
  return MakeFieldError(absl::StatusCode::kFailedPrecondition,
                        DependsOnPrompt{}, "no token is possible ",
                        WhereNoToken(num_generated));
}

absl::Status NotANumber(std::optional<int> num_generated) {
  return Internal("the model's logits are not numbers (NaN) ",
                  WhereNoToken(num_generated));
}

absl::Status CheckNumbers(std::span<const Candidate> candidates,
                          int num_generated) {
  for (const Candidate& candidate : candidates) {
    if (candidate.token == kNotANumber) return NotANumber(num_generated);
  }
  return absl::OkStatus();
}

bool CanRunAhead(const DecodeStrategy& strategy,
                 const SelectionParams& params) {
  return strategy.supports_async_scheduling() &&
         (!strategy.stopping_criteria().restricts() ||
          params.constraint.has_value());
}

}  // namespace espalier
