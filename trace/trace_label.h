// What a picture of a trace says of tokens, as text that is safe to show: a
// token is anything, also half a character, a line break or "</script>".
#pragma once

#include <string>
#include <string_view>

#include "trace/trace_tree.h"

namespace espalier {

// `text` with what cannot be seen made visible: "·" for a space (or
// SentencePiece's mark of one), "↵" for a line break, pictures of other
// controls; U+FFFD for what turns the direction of a line or is no character in
// XML. REQUIRES: well-formed UTF-8.
std::string Visible(std::string_view text);

// The same for texts of many tokens: spaces stay spaces, those in front go.
// REQUIRES: well-formed UTF-8.
std::string Readable(std::string_view text);

// `text` in XML or HTML, between tags or in a quoted attribute. A slash is
// escaped too, so that no text can end an element or name an address.
std::string EscapeMarkup(std::string_view text);

// Columns that `text` takes in a fixed-width font: 2 for East Asian characters
// and pictographs, 0 for what combines with the character before.
// REQUIRES: well-formed UTF-8.
int NumColumns(std::string_view text);

// The first columns of `text`, with "…" at the end if that is not all.
std::string Shortened(std::string_view text, int max_columns);

// A token: its text made visible, or "#279" if that is not known.
std::string TokenLabel(const TraceCandidate& candidate);

// Of a token after its path, in [0, 1].
double Probability(const TraceCandidate& candidate);

// "-0.1685"
std::string ScoreLabel(float score);

// The texts of a path's tokens, one after the other, less an EOS.
std::string PathText(const TraceTree& tree, int node);

// What the decoder of an encoder-decoder was given to go on from, made visible:
// "Il·pleut", or "#31 #7" if the texts are not known; "" if it was given
// nothing.
std::string DecoderPromptLabel(const TraceTree& tree);

// What a request is called in pictures: "Request 3 (id a): It rains.", with a
// decoder prompt "Request 3 (id a): It rains. → Il pleut", less what is not
// known of it.
std::string Title(const TraceTree& tree);

// "preempted before step 5, which gave 3 pages back; 12 tokens cached and 4 fed
// again".
std::string PreemptionLabel(const TracePreemption& preemption);

// How a request came to no result: its error, or that the trace stops before
// its end; "" if it came to one.
std::string WhyNoResult(const TraceTree& tree);

// "beams, 10 prompt tokens, 8 steps, 74 candidates: 36 kept, 30 pruned, 8
// finished"
std::string Summary(const TraceTree& tree);

}  // namespace espalier
