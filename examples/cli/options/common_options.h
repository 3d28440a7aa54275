// Options that the commands have in common: of the model, the device and the
// engine; and helpers to define options.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "examples/cli/options/options.h"

namespace espalier::cli {

// An integer from `low` to `high`, in decimal. For transform().
CLI::Validator InRange(int64_t low, int64_t high);

// --do-sample, or --do-sample=false. `set` is given what was typed.
CLI::Option* AddFlag(CLI::App* command, const std::string& names,
                     const std::string& help,
                     const std::function<void(const std::string&)>& set);
CLI::Option* AddFlag(CLI::App* command, const std::string& name,
                     const std::string& help, bool* flag);

// --split-sentences, or --split-sentences=false.
void AddSplitOption(CLI::App* command, RuntimeOptions* options);

// The options of the model, the device and the engine.
void AddGeneratorOptions(CLI::App* command, RuntimeOptions* options);

// --items NAME=FILE, once for each catalogue.
void AddItemsOption(CLI::App* command, RuntimeOptions* options);

// --draft-model, of commands that generate.
void AddDraftModelOption(CLI::App* command, RuntimeOptions* options);

// Adds both, and the options of the prompt template.
void AddRuntimeOptions(CLI::App* command, RuntimeOptions* options);

// Adds AddRuntimeOptions(), and the options that report on a run.
void AddCommonOptions(CLI::App* command, CommonOptions* options);

// More of the engine, where no fields of the request format have their names:
// --prefix-cache and --speculate, for requests that do not say.
void AddDefaultsOfRequests(CLI::App* command, CommonOptions* options);

// Returns the text for --help on the defaults of requests in the
// generation_config.json or config.json of the model named in `options`, or the
// error in it; "" if no model is named, or it has no defaults.
std::string HelpOnDefaults(const RuntimeOptions& options);

}  // namespace espalier::cli
