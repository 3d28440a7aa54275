// Catalogues of items, which requests name (ConstraintParams::items): those of
// a generator or engine (Generator::items, Engine::items), and reading them
// from files.
//
//   ASSIGN_OR_RETURN(auto songs, LoadItems("songs.jsonl", tokenizer,
//                                          generator.description().vocab_size));
//   generator.items().Put("songs", std::move(songs));
#pragma once

#include "constrain/item_catalogues.h"
#include "request/read_items.h"
