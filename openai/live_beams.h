// LiveBeams: the state of a beam search as an event of a stream shows it.
//
// Thread safety: constant; any thread may call.
#pragma once

#include <memory>
#include <string>

#include "request/generation_params.h"
#include "request/stream_event.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

class LiveBeams {
 public:
  // `tokenizer` outlives this; null: there are no texts.
  LiveBeams(const GenerationParams& params, const Tokenizer* tokenizer);

  // {"prompt", "step", "beams": [{"text", "tokens", "score", "cum_log_prob",
  //  "finish_reason"}, ...]}: what lives by rank, then what may still be
  // returned. Texts are what is certain of them.
  void Append(int prompt, const BeamsEvent& event, std::string* out) const;

 private:
  std::string TextOf(const BeamState& beam) const;

  // Constant after construction.
  const Tokenizer* tokenizer_;
  std::unique_ptr<const StopStrings> stops_;  // texts refer to them
  TextOptions options_;
};

}  // namespace espalier::openai
