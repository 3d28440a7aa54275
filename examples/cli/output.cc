#include "examples/cli/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier::cli {
namespace {

// Bytes that a character has which begins with `lead`; 1 if none does.
size_t CharacterLength(unsigned char lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// One character, or one byte that is none.
std::string ShownCharacter(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(character[i]);
  };
  if (!IsUtf8(character)) return absl::StrFormat("\\x%02x", byte(0));
  // C1 controls are U+0080 to U+009F; in two bytes the second is the code.
  const bool is_c1 = byte(0) == 0xC2 && byte(1) < 0xA0;
  const bool is_c0 = byte(0) < 0x20 && byte(0) != '\n' && byte(0) != '\t';
  if (is_c0 || is_c1 || byte(0) == 0x7F) {
    return absl::StrFormat("\\u%04x", is_c1 ? byte(1) : byte(0));
  }
  return std::string(character);
}

bool IsTerminal(FILE* file) { return isatty(fileno(file)) == 1; }

bool IsRegularFile(FILE* file) {
  struct stat info;
  return fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

std::string ForTerminal(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    std::string_view character = text.substr(0, CharacterLength(text[0]));
    if (!IsUtf8(character)) character = text.substr(0, 1);
    shown += ShownCharacter(character);
    text.remove_prefix(character.size());
  }
  return shown;
}

bool IsSameFile(const std::string& path, const std::string& other) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         std::filesystem::equivalent(path, other, error);
}

void PrintToStderr(std::string_view text) {
  const std::string shown =
      IsTerminal(stderr) ? ForTerminal(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

absl::StatusOr<std::unique_ptr<Output>> Output::Open(const std::string& path) {
  const bool is_stdout = path == "-";
  FILE* file = is_stdout ? stdout : std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return FailedPrecondition("cannot write ", path, ": ",
                              std::strerror(errno));
  }
  return std::unique_ptr<Output>(new Output(file, is_stdout ? "stdout" : path));
}

Output::Output(FILE* file, std::string name)
    : file_(file),
      name_(std::move(name)),
      is_terminal_(IsTerminal(file)),
      is_live_(!IsRegularFile(file)) {}

Output::~Output() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void Output::Check(bool done) {
  if (!done && error_ == 0) error_ = errno;
}

void Output::Write(std::string_view text) {
  if (failed()) return;
  const std::string shown = is_terminal_ ? ForTerminal(text) : std::string();
  if (is_terminal_) text = shown;
  Check(std::fwrite(text.data(), 1, text.size(), file_) == text.size());
}

void Output::Flush() {
  if (!failed()) Check(std::fflush(file_) == 0);
}

absl::Status Output::Close() {
  Flush();
  FILE* const file = std::exchange(file_, nullptr);
  if (file != stdout) Check(std::fclose(file) == 0);
  if (!failed()) return absl::OkStatus();
  return Internal("cannot write ", name_, ": ", std::strerror(error_));
}

}  // namespace espalier::cli
