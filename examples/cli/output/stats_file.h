// StatsFile: the statistics of a command's engine in a file, in Prometheus
// format (batcher/prometheus_text.h), for a node exporter or any other reader.
//
// A reader always finds one complete text: each is written to FILE.tmp, which
// is then renamed to FILE.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "batcher/prometheus_text.h"

namespace espalier::cli {

// Interval between writes while a command runs.
inline constexpr absl::Duration kStatsPeriod = absl::Seconds(2);

class StatsFile {
 public:
  // Replaces the file at `path` by zeros, so that an unusable path is found
  // before any work starts.
  //   labels  of every sample
  // Errors: kInvalidArgument if the path is not a regular file, or if FILE.tmp
  // holds something else; kFailedPrecondition naming the file and the system's
  // reason.
  static absl::StatusOr<StatsFile> Open(const std::string& path,
                                        std::vector<MetricLabel> labels);

  // Path of the temporary file for the file at `path`.
  static std::string TemporaryOf(const std::string& path);

  // Errors: kInternal, or `code`, naming the file and the system's reason; the
  // file has its last text then.
  absl::Status Write(const EngineStats& stats,
                     absl::StatusCode code = absl::StatusCode::kInternal) const;

 private:
  StatsFile(std::string path, std::vector<MetricLabel> labels);

  std::string path_;    // as it was given
  std::string target_;  // the file that it leads to
  std::vector<MetricLabel> labels_;
};

}  // namespace espalier::cli
