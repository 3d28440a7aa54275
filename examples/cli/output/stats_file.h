// StatsFile: the statistics of a command's engine in a file, for Prometheus
// (batcher/prometheus_text.h): a node exporter reads it, or whoever likes.
//
// Whoever opens the file finds one whole text: each is written to FILE.tmp,
// which then takes the name FILE.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "batcher/prometheus_text.h"

namespace espalier::cli {

// How often it is written while a command runs.
inline constexpr absl::Duration kStatsPeriod = absl::Seconds(2);

class StatsFile {
 public:
  // Replaces the file at `path` by the statistics of nothing done yet, so that
  // what is wrong with the path is found before there is work.
  //   labels  of every sample
  // Errors: kInvalidArgument if there is something at the path that is no
  // regular file, or something of somebody else's at FILE.tmp;
  // kFailedPrecondition naming the file and the system's reason.
  static absl::StatusOr<StatsFile> Open(const std::string& path,
                                        std::vector<MetricLabel> labels);

  // Where the texts of the file at `path` are written first.
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
