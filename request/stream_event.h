// What a request tells while it runs (batcher/result_stream.h), as values.
//
// Samples, and greedy search, which is one, tell how each of them grows. A beam
// search, also one that draws, gives its stable prefix: the tokens that every
// live beam and every hypothesis that may still be returned begin with. Both
// only grow; nothing told is taken back. The last event is the Result.
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
  // Beams: tell the state of the search too.
  bool beams = false;
};

// How one sample went on. The tokens of its events, one after the other, are
// those of its hypothesis, and the texts are the hypothesis' text.
struct SampleEvent {
  int sample = 0;  // from 0
  std::vector<TokenId> tokens = {};
  std::string text = {};
  // Set in its last event.
  std::optional<FinishReason> finish_reason = {};
  // [tokens], if the request asks for them.
  std::vector<TokenLogProb> logprobs = {};
};

// How the stable prefix grew. The tokens of these events, one after the
// other, begin every hypothesis that is returned, and the texts its text.
struct StablePrefixEvent {
  std::vector<TokenId> tokens = {};
  std::string text = {};
};

// A sequence of a beam search.
struct BeamState {
  std::vector<TokenId> tokens;  // generated, from the first on
  float score = 0;              // of a live one: at its present length
  float cum_log_prob = 0;
  std::optional<FinishReason> finish_reason = {};  // unset: it lives
};

// Where a beam search stands.
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
