// The command line: names of the program's commands and options, their help
// texts, and the choice of the command. Only this file and
// examples/cli/options/usage_error.cc include CLI11, which takes a compiler
// seconds to read; commands get plain structs.
#pragma once

namespace espalier::cli {

// Reads the command line, runs the command that it names, and returns the
// program's exit code. Prints errors in the command line on stderr.
int RunCommandLine(int argc, char** argv);

}  // namespace espalier::cli
