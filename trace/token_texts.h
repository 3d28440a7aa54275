// The texts of tokens in a trace. An engine knows tokens as numbers: events
// come without texts, and get them where there is a tokenizer.
#pragma once

#include "text/tokenizer.h"
#include "trace/trace.h"

namespace espalier {

// Sets the text of a prompt, the decoder's (a param) too, and of a candidate's
// token. A prompt that the tokenizer cannot decode stays without.
void AddTokenTexts(const Tokenizer& tokenizer, TraceEvent* event);

}  // namespace espalier
