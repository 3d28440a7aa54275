// Notes on requests for which the model's defaults choose between sampling and
// beam search. A request that sets do_sample and leaves num_beams to the model
// gets a note that names the choice and its reason, because the same options
// give beams or samples, depending on the number of hypotheses. A request for
// beam search gets a note on the defaults that it overrides.
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
  kNone,         // the request says all of it, or there are no such defaults
  kBeams,        // num_beams is the model's
  kSamples,      // the model's num_beams are below the number to return
  kSearch,       // num_beams is the request's own, do_sample the model's
  kSpeculation,  // defaults that do not go with the request's speculate
  kIdle,         // fields that change nothing (IdleFieldWarnings)
};

struct DrawNote {
  DrawNoteKind kind = DrawNoteKind::kNone;
  std::string text;  // without a line end
};

// Returns the note on a request with these params. `given` lists the fields
// that it sets, and `taken` the `defaults` that it takes. The last three
// arguments are the names of these fields.
DrawNote NoteOnDraws(const GenerationParams& params,
                     std::span<const std::string_view> given,
                     const NamedValues& taken,
                     const GenerationDefaults& defaults,
                     std::string_view num_beams,
                     std::string_view num_return_sequences,
                     std::string_view do_sample);

}  // namespace espalier::cli
