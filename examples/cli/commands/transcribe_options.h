// The options of espalier transcribe (transcribe_command.h) that are its own,
// by the names of openai/whisper and faster-whisper.
#pragma once

#include <CLI/App.hpp>

#include "examples/cli/commands/transcribe_command.h"

namespace espalier::cli {

void AddTranscribeOptions(CLI::App* command, TranscribeCommandOptions* options);

}  // namespace espalier::cli
