// Adds the texts of tokens to trace events. Engines have no tokenizer, so their
// events have token ids only.
#pragma once

#include "text/tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace espalier {

// Sets the texts of a prompt, of a decoder prompt (params `decoder_prompt`),
// and of a candidate's token, as far as the tokenizer can decode them.
void AddTokenTexts(const Tokenizer& tokenizer, TraceEvent* event);

}  // namespace espalier
