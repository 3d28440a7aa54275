// The command line: what the program's commands and options are called, what
// their help says, and which command runs. It is told to CLI11 here and in
// examples/cli/options/usage_error.cc alone, for that library takes a compiler
// seconds to read; commands get plain structs.
#pragma once

namespace espalier::cli {

// Reads the command line, runs the command that it names, and returns the
// program's exit code. What is wrong with it is told on stderr.
int RunCommandLine(int argc, char** argv);

}  // namespace espalier::cli
