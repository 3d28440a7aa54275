#include "examples/cli/commands/check_lines.h"

#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace espalier::cli {

absl::StatusOr<int64_t> CheckLines(
    LineReader& reader, bool json, Output& output,
    absl::FunctionRef<absl::Status(const std::string& line)> check) {
  int64_t number = 0, num_failed = 0;
  while (!output.failed()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader.Read());
    if (lines.empty()) break;
    for (const std::string& line : lines) {
      ++number;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      const absl::Status status = check(line);
      if (status.ok()) continue;
      ++num_failed;
      if (json) {
        output.Write(WriteJson(json::object{{"error", Message(status)}}) +
                     "\n");
      }
      PrintToStderr(Concat("espalier: ", reader.name(), ":", number, ": ",
                           Message(status), "\n"));
    }
  }
  if (number == 0 && !output.failed()) {
    PrintNote("no lines in " + reader.name());
  }
  return num_failed;
}

}  // namespace espalier::cli
