// Options of a runtime (examples/cli/runtime/runtime.h) that the user chooses.
#pragma once

#include <optional>
#include <string>

#include "espalier/generator_options.h"
#include "examples/cli/options/option_names.h"

namespace espalier::cli {

struct RuntimeOptions {
  std::string model;  // directory
  // Which prompt template: by name, or by languages; empty is the default.
  std::string template_name;
  std::string from;
  std::string to;
  // Names of special tokens in texts are those tokens.
  bool parse_special = false;
  // Splits texts into sentences where a request does not say; unset: the model
  // decides.
  std::optional<bool> split_sentences = {};
  // If set, a text is a user's message in a chat, and the model's chat template
  // makes the prompt. `system` is the message before it; empty: none.
  bool chat = false;
  std::string system;
  // But for max_waiting, and kv_cache_bytes and host_cache_bytes, which are in
  // MiB here.
  GeneratorOptions generator;
  std::optional<int> kv_cache_mib;    // unset: by device
  std::optional<int> host_cache_mib;  // as well
  std::string trace;                  // file to write a trace to; empty: none
  std::string stats;                  // the same for statistics
  OptionNames names;                  // as typed
};

}  // namespace espalier::cli
