// Defaults of requests that a model comes with (generation_config.json), for
// callers of an Engine; a Generator reads and takes them itself.
//
//   auto defaults = LoadModelDefaults("auto", directory);
//   if (!defaults.ok()) return defaults.status();
//   FitDefaults("auto", model, /*has_tokenizer=*/true, &*defaults);
//   ...
//   CompleteRequest(*defaults, std::nullopt, tokenizer, model, &request);
//   co_await engine.Generate(std::move(request));
#pragma once

#include "espalier/model_defaults.h"
#include "request/resolve_defaults.h"
