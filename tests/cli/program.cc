#include "tests/cli/program.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

ProgramRun RunProgram(const std::string& program,
                      const std::vector<std::string>& args,
                      const std::string& input) {
  const ScratchDirectory scratch;
  std::string command = Quote(program);
  for (const std::string& arg : args) command += " " + Quote(arg);
  command += " < " + Quote(scratch.Write("in", input)) + " > " +
             Quote(scratch.path("out")) + " 2> " + Quote(scratch.path("err"));
  const int status = std::system(command.c_str());
  return {ExitCode(status), ReadText(scratch.path("out")),
          ReadText(scratch.path("err"))};
}

ProgramRun RunEspalier(const std::vector<std::string>& args,
                       const std::string& input) {
  return RunProgram(ESPALIER_PROGRAM, args, input);
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string ModelDirectory(const std::string& name) {
  return SourcePath("models/" + name);
}

void LinkFiles(const std::string& folder, const ScratchDirectory& to) {
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::filesystem::create_symlink(file.path(),
                                    to.path(file.path().filename().string()));
  }
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<json::value> ParseLines(const std::string& text) {
  std::vector<json::value> values;
  for (const std::string& line : SplitLines(text)) {
    absl::StatusOr<json::value> value = ParseJson(line);
    CHECK(value.ok()) << line;
    values.push_back(*std::move(value));
  }
  return values;
}

}  // namespace espalier::testing
