// What is said where the model's defaults decide between draws and the search.
// A request that asks for draws and leaves num_beams to the model hears whether
// that draws beams or samples, and why: without it the same options give the
// one or the other, by the number of hypotheses. One that asks for the search
// hears which of the model's defaults that leaves out.
//
// Thread safety: a function without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "request/generation_defaults.h"
#include "request/generation_params.h"

namespace espalier::cli {

enum class DrawNoteKind {
  kNone,     // the request says all of it, or there are no such defaults
  kBeams,    // num_beams is the model's
  kSamples,  // the model's num_beams are fewer than what is to be returned
  kSearch,   // num_beams is the request's own, do_sample the model's
};

struct DrawNote {
  DrawNoteKind kind = DrawNoteKind::kNone;
  std::string text;  // without a line end
};

// Of a request with these params, which gives `given` and has taken `taken` of
// `defaults`. The last three are what fields are called.
DrawNote NoteOnDraws(const GenerationParams& params,
                     std::span<const std::string_view> given,
                     const NamedValues& taken,
                     const GenerationDefaults& defaults,
                     std::string_view num_beams,
                     std::string_view num_return_sequences,
                     std::string_view do_sample);

}  // namespace espalier::cli
