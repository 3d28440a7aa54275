// Catalogues of items, which requests name (ConstraintParams::items): those of
// a generator or engine (Generator::items, Engine::items), and reading them
// from files.
//
//   const ModelDescription& model = generator.description();
//   ASSIGN_OR_RETURN(
//       auto songs,
//       LoadItems("songs.jsonl", generator.tokenizer().get(), model.vocab_size,
//                 EndIdsByDefault(generator.defaults(), model)));
//   generator.items().Put("songs", std::move(songs));
#pragma once

#include "constrain/item_catalogues.h"
#include "request/generation_defaults.h"
#include "request/read_items.h"
