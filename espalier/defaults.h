// Defaults of requests that a model comes with (generation_config.json), for
// callers of an Engine; a Generator reads and takes them itself.
//
//   auto defaults = LoadModelDefaults("auto", directory);
//   if (!defaults.ok()) return defaults.status();
//   RETURN_IF_ERROR(
//       FitDefaults("auto", model, /*has_tokenizer=*/true, &*defaults));
//   ...
//   RETURN_IF_ERROR(
//       CompleteRequest(*defaults, std::nullopt, tokenizer, model, &request)
//           .status());
//   co_await engine.Generate(std::move(request));
#pragma once

#include "espalier/model_defaults.h"
#include "request/resolve_defaults.h"
