// Runs the espalier program as a user would, and JSON lines for it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/scratch_directory.h"

namespace espalier::testing {

struct ProgramRun {
  int exit_code = -1;  // as a shell has it: 128 + N if signal N ended it
  std::string out;
  std::string err;
};

// Runs `espalier ARGS...` with `input` on stdin.
ProgramRun RunEspalier(const std::vector<std::string>& args,
                       const std::string& input = "");
// Runs another program of the build.
ProgramRun RunProgram(const std::string& program,
                      const std::vector<std::string>& args,
                      const std::string& input);

// ProgramRun::exit_code of what wait() reports.
int ExitCode(int status);

// models/NAME of the source tree.
std::string ModelDirectory(const std::string& name);

// A link in `to` to each file of `folder`, of which a test changes some.
void LinkFiles(const std::string& folder, const ScratchDirectory& to);

std::string ReadText(const std::string& path);
std::vector<std::string> SplitLines(const std::string& text);
// REQUIRES: every line is JSON.
std::vector<json::value> ParseLines(const std::string& text);

}  // namespace espalier::testing
