// Random requests over all parameters of generation: every way to decode, from
// one sequence to hundreds of samples and beams, with every kind of processor,
// constraint, stop and report, in all combinations that are valid; and scores
// of given continuations.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "exec_request/model.h"
#include "request/request.h"

namespace espalier::testing {

// The most that a request has of each.
struct MixtureLimits {
  int max_samples = 600;
  int max_beams = 128;
  int max_prompt_tokens = 60;
  int max_new_tokens = 8;
  // If set, some samples have drafts. The executor must verify them.
  bool speculates = false;
  bool has_draft_model = false;  // which drafts for half of these
  bool scores = false;           // one in eight scores continuations
  bool constrains = false;  // one in six has a text in a language, if it can
};

// A valid request for `model` and its limits. One in twelve is as wide as the
// limits allow.
Request AnyMixtureRequest(std::mt19937& random, const ModelDescription& model,
                          const MixtureLimits& limits);

std::vector<Request> AnyMixtureRequests(int count, uint32_t seed,
                                        const ModelDescription& model,
                                        const MixtureLimits& limits);

}  // namespace espalier::testing
