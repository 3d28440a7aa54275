// Labels for tokens and requests in drawings of a trace, without control
// characters. Markup is not escaped, although a token's text may be
// "</script>": use EscapeMarkup. All texts, also those of a trace, must be
// well-formed UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "trace/trace_tree.h"

namespace espalier {

// Returns `text` with invisible characters replaced: "·" for a space (or
// SentencePiece's mark of one), "↵" for a line feed, control pictures for other
// ASCII controls; U+FFFD for C1 and bidirectional controls, line and paragraph
// separators, and characters that XML does not allow.
// REQUIRES: well-formed UTF-8.
std::string Visible(std::string_view text);

// Returns Visible() for texts of many tokens: spaces stay spaces, leading ones
// are removed.
// REQUIRES: well-formed UTF-8.
std::string Readable(std::string_view text);

// Escapes & < > " ' and / for XML or HTML, between tags or in a quoted
// attribute. Without slashes no text can end an element or look like a URL in
// the source of a page.
std::string EscapeMarkup(std::string_view text);

// Returns the width of `text` in columns of a fixed-width font: 2 for East
// Asian characters and pictographs, 0 for combining characters. REQUIRES:
// well-formed UTF-8.
int NumColumns(std::string_view text);

// Returns `text` if it has at most `max_columns` columns; otherwise as much of
// its beginning as fits before "…", in max_columns columns together.
// REQUIRES: max_columns >= 1; well-formed UTF-8.
std::string Shortened(std::string_view text, int max_columns);

// Returns the visible text of a token, or "#279", its id, if the trace has no
// text for it.
std::string TokenLabel(const TraceCandidate& candidate);

// Returns the probability of the candidate's token, in [0, 1].
double Probability(const TraceCandidate& candidate);

// Returns a score with four decimals: "-0.1685".
std::string ScoreLabel(float score);

// Returns the readable text of the path to `node`, without a final EOS. A token
// whose text is not known becomes "#279 ".
std::string PathText(const TraceTree& tree, int node);

// Returns the visible decoder prompt of an encoder-decoder request: "Il·pleut",
// or "#31 #7" if the texts are not known; "" without one.
std::string DecoderPromptLabel(const TraceTree& tree);

// Returns the title of a request: "Request 3 (id a): It rains.", with a decoder
// prompt "Request 3 (id a): It rains. → Il pleut", without unknown parts.
std::string Title(const TraceTree& tree);

// Returns "3 legal".
std::string NumLegalLabel(const TraceLegalRow& row);

// Returns "3 legal tokens, state 12, room 7, mass 0.821", the last if known.
std::string LegalLabel(const TraceLegalRow& row);

// Returns "preempted before step 5, gave 3 pages back; resumed with 12 tokens
// cached, 4 fed again"; "did not resume" in place of the second half if so.
std::string PreemptionLabel(const TracePreemption& preemption);

// Returns the error of a failed request, "CODE: message", or "the trace stops
// before its end"; "" if the request has a result.
std::string WhyNoResult(const TraceTree& tree);

// Returns "beams, 10 prompt tokens, 8 steps, 74 candidates: 36 kept, 30 pruned,
// 8 finished".
std::string Summary(const TraceTree& tree);

}  // namespace espalier
