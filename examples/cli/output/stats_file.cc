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

absl::Status CannotWriteStats(absl::StatusCode code, const std::string& path) {
  return MakeError(code, "cannot write ", path, ": ", std::strerror(errno));
}

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

// What the path leads to, where it is a symbolic link.
std::string TargetOf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

// Whether there is no file, or one that a run left behind which was killed: a
// text of statistics, or the beginning of one.
bool IsFree(const std::string& temporary) {
  const std::string_view begin = "# HELP ";
  char bytes[8] = {};
  std::ifstream file(temporary, std::ios::binary);
  if (!file.read(bytes, begin.size())) return file.gcount() == 0;
  return begin == bytes;
}

// Errors: of this code.
absl::Status ReplaceFile(const std::string& path, std::string_view text,
                         absl::StatusCode code) {
  const std::string temporary = StatsFile::TemporaryOf(path);
  const int fd =
      open(temporary.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return CannotWriteStats(code, temporary);
  const bool is_written = WriteWhole(fd, text);
  absl::Status status;
  if (!is_written) status = CannotWriteStats(code, temporary);
  if (close(fd) != 0 && status.ok()) status = CannotWriteStats(code, temporary);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = CannotWriteStats(code, path);
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace

absl::StatusOr<StatsFile> StatsFile::Open(const std::string& path,
                                          std::vector<MetricLabel> labels) {
  std::error_code error;
  if (std::filesystem::exists(path, error) &&
      !std::filesystem::is_regular_file(path, error)) {
    return InvalidArgument("--stats needs a regular file, got ", path);
  }
  if (const std::string temporary = TemporaryOf(path); !IsFree(temporary)) {
    return InvalidArgument("--stats is first written to ", temporary,
                           ", where there is another file");
  }
  StatsFile file(TargetOf(path), std::move(labels));
  RETURN_IF_ERROR(ReplaceFile(file.path_,
                              PrometheusText(EngineStats(), file.labels_),
                              absl::StatusCode::kFailedPrecondition));
  return file;
}

std::string StatsFile::TemporaryOf(const std::string& path) {
  return TargetOf(path) + ".tmp";
}

StatsFile::StatsFile(std::string path, std::vector<MetricLabel> labels)
    : path_(std::move(path)), labels_(std::move(labels)) {}

absl::Status StatsFile::Write(const EngineStats& stats) const {
  return ReplaceFile(path_, PrometheusText(stats, labels_),
                     absl::StatusCode::kInternal);
}

}  // namespace espalier::cli
