// Defaults of requests that a model comes with (generation_config.json), for
// callers of an Engine; a Generator reads and takes them itself.
//
//   absl::StatusOr<GenerationDefaults> defaults =
//       LoadModelDefaults("auto", directory);
//   if (!defaults.ok()) return defaults.status();
//   const absl::Status fits =
//       FitDefaults("auto", model, /*has_tokenizer=*/true, &*defaults);
//   if (!fits.ok()) return fits;
//   // For each request:
//   const absl::StatusOr<NamedValues> taken = CompleteRequest(
//       *defaults, /*given=*/std::nullopt, tokenizer, model, &request);
//   if (!taken.ok()) return taken.status();
#pragma once

#include "espalier/model_defaults.h"
#include "request/resolve_defaults.h"
