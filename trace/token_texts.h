// The texts of tokens in a trace. An engine knows tokens as numbers: events
// come without texts, and get them where there is a tokenizer.
#pragma once

#include "text/tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace espalier {

// Sets the text of a prompt, of a decoder prompt (params `decoder_prompt`), and
// of a candidate's token. What the tokenizer cannot decode stays without a
// text.
void AddTokenTexts(const Tokenizer& tokenizer, TraceEvent* event);

}  // namespace espalier
