#include "examples/cli/output/stats_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace espalier::cli {
namespace {

constexpr char kTemporarySuffix[] = ".tmp";

// Sets errno where it returns false.
bool WriteWhole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

// Returns the target of a symbolic link, or the path itself.
std::string TargetOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

// True if there is no file, or one that a killed run has left: statistics, or
// the beginning of them.
bool IsFree(const std::string& temporary) {
  const std::string_view begin = "# HELP ";
  char bytes[8] = {};
  std::ifstream file(temporary, std::ios::binary);
  if (!file.read(bytes, begin.size())) return file.gcount() == 0;
  return begin == bytes;
}

// Writes `text` to `temporary` and gives it the name `path`. Sets errno where
// it returns false.
bool ReplaceFile(const std::string& path, const std::string& temporary,
                 std::string_view text) {
  const int fd =
      open(temporary.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return false;
  bool is_written = WriteWhole(fd, text);
  int error = errno;
  if (close(fd) != 0 && std::exchange(is_written, false)) error = errno;
  if (is_written) {
    is_written = std::rename(temporary.c_str(), path.c_str()) == 0;
    error = errno;
  }
  if (!is_written) unlink(temporary.c_str());
  errno = error;
  return is_written;
}

}  // namespace

absl::StatusOr<StatsFile> StatsFile::Open(const std::string& path,
                                          std::vector<MetricLabel> labels) {
  std::error_code error;
  if (std::filesystem::exists(path, error) &&
      !std::filesystem::is_regular_file(path, error)) {
    return InvalidArgument(path, " is not a regular file");
  }
  if (const std::string temporary = TemporaryOf(path); !IsFree(temporary)) {
    return InvalidArgument(path, " is first written to ", temporary,
                           ", where there is another file");
  }
  StatsFile file(path, std::move(labels));
  RETURN_IF_ERROR(
      file.Write(EngineStats(), absl::StatusCode::kFailedPrecondition));
  return file;
}

std::string StatsFile::TemporaryOf(const std::string& path) {
  return TargetOf(path) + kTemporarySuffix;
}

StatsFile::StatsFile(std::string path, std::vector<MetricLabel> labels)
    : path_(std::move(path)),
      target_(TargetOf(path_)),
      labels_(std::move(labels)) {}

absl::Status StatsFile::Write(const EngineStats& stats,
                              absl::StatusCode code) const {
  const std::string temporary = target_ + kTemporarySuffix;
  if (ReplaceFile(target_, temporary, PrometheusText(stats, labels_))) {
    return absl::OkStatus();
  }
  const std::string why = std::strerror(errno);
  // If the file exists, its own permissions were not the cause.
  std::error_code error;
  const bool is_there = std::filesystem::exists(target_, error);
  return MakeError(code, "cannot write ", path_,
                   is_there ? " by way of " + temporary : "", ": ", why);
}

}  // namespace espalier::cli
