// What is said to who asks for draws and leaves num_beams to the model: whether
// that draws beams or samples, and why. Without it the same options give the
// one or the other, by the number of hypotheses.
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
  kNone,     // nobody asks for draws, or num_beams is the request's own
  kBeams,    // num_beams is the model's
  kSamples,  // the model's num_beams are fewer than what is to be returned
};

struct DrawNote {
  DrawNoteKind kind = DrawNoteKind::kNone;
  std::string text;  // without a line end
};

// Of a request with these params, which gives `given` and has taken `taken` of
// `defaults`. The two fields are called so.
DrawNote NoteOnDraws(const GenerationParams& params,
                     std::span<const std::string_view> given,
                     const NamedValues& taken,
                     const GenerationDefaults& defaults,
                     std::string_view num_beams,
                     std::string_view num_return_sequences);

}  // namespace espalier::cli
