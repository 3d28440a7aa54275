// Events of a running request (batcher/result_stream.h), as values.
//
// Samples, and greedy search, which is one, report their new tokens. A beam
// search, sampled or not, reports its stable prefix: the tokens that every live
// beam and every hypothesis that may still be returned begin with. Both only
// grow; reported tokens are never retracted. The last event is the Result.
//
// Text is there if the engine has a tokenizer. It comes as whole characters,
// and lags behind the tokens while they end within a character, or in what may
// be the start of a stop string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/token_log_prob.h"
#include "request/request.h"

namespace espalier {

struct StreamOptions {
  // Beam search: report the state of the search too.
  bool beams = false;
};

// New tokens of one sample. The tokens of its events, concatenated, are those
// of its hypothesis, and the texts are the hypothesis' text.
struct SampleEvent {
  int sample = 0;  // from 0
  std::vector<TokenId> tokens = {};
  std::string text = {};
  // Set in its last event.
  std::optional<FinishReason> finish_reason = {};
  // [tokens], if the request asks for them.
  std::vector<TokenLogProb> logprobs = {};
};

// New tokens of the stable prefix. The tokens of these events, concatenated,
// begin every hypothesis that is returned, and the texts begin its text.
struct StablePrefixEvent {
  std::vector<TokenId> tokens = {};
  std::string text = {};
};

// A sequence of a beam search.
struct BeamState {
  std::vector<TokenId> tokens;  // generated, from the first on
  float score = 0;              // a live beam's: at its present length
  float cum_log_prob = 0;
  std::optional<FinishReason> finish_reason = {};  // unset: it lives
};

// State of a beam search.
struct BeamsEvent {
  int64_t num_steps = 0;  // so far
  // The sentence that is searched, from 0, of a text that is split into
  // sentences (docs/sentences.md).
  std::optional<int> sentence = {};
  // The live beams by rank, then the hypotheses that may still be returned,
  // best first.
  std::vector<BeamState> beams = {};
};

using StreamEvent =
    std::variant<SampleEvent, StablePrefixEvent, BeamsEvent, Result>;

}  // namespace espalier
