// Labels for tokens and requests in drawings of a trace. They are safe to
// display, although a token may be any bytes, such as half a character, a line
// break or "</script>".
#pragma once

#include <string>
#include <string_view>

#include "trace/trace_tree.h"

namespace espalier {

// Returns `text` with invisible characters replaced: "·" for a space (or
// SentencePiece's mark of one), "↵" for a line break, control pictures for
// other controls; U+FFFD for bidirectional controls and for characters that XML
// does not allow.
// REQUIRES: well-formed UTF-8.
std::string Visible(std::string_view text);

// Returns Visible() for texts of many tokens: spaces stay spaces, leading ones
// are removed.
// REQUIRES: well-formed UTF-8.
std::string Readable(std::string_view text);

// Escapes `text` for XML or HTML, between tags or in a quoted attribute. A
// slash is escaped too, so that no text can end an element or form a URL.
std::string EscapeMarkup(std::string_view text);

// Returns the width of `text` in columns of a fixed-width font: 2 for East
// Asian characters and pictographs, 0 for combining characters. REQUIRES:
// well-formed UTF-8.
int NumColumns(std::string_view text);

// Returns the first columns of `text`, followed by "…" if it is longer.
std::string Shortened(std::string_view text, int max_columns);

// Returns the visible text of a token, or "#279" if that is not known.
std::string TokenLabel(const TraceCandidate& candidate);

// Returns the probability of the candidate's token, in [0, 1].
double Probability(const TraceCandidate& candidate);

// Returns a score like "-0.1685".
std::string ScoreLabel(float score);

// Returns the concatenated texts of a path's tokens, without EOS.
std::string PathText(const TraceTree& tree, int node);

// Returns the visible decoder prompt of an encoder-decoder request: "Il·pleut",
// or "#31 #7" if the texts are not known; "" without one.
std::string DecoderPromptLabel(const TraceTree& tree);

// Returns the title of a request: "Request 3 (id a): It rains.", with a decoder
// prompt "Request 3 (id a): It rains. → Il pleut", without unknown parts.
std::string Title(const TraceTree& tree);

// Returns "preempted before step 5, which gave 3 pages back; 12 tokens cached
// and 4 fed again".
std::string PreemptionLabel(const TracePreemption& preemption);

// Returns the error of a request without a result, or the fact that the trace
// stops before its end; "" if the request has a result.
std::string WhyNoResult(const TraceTree& tree);

// Returns "beams, 10 prompt tokens, 8 steps, 74 candidates: 36 kept, 30 pruned,
// 8 finished".
std::string Summary(const TraceTree& tree);

}  // namespace espalier
