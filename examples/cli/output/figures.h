// The stats of a run, for people to read.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "batcher/engine_stats.h"

namespace espalier::cli {

// One line each: tokens per second, steps, requests whose best hypothesis was
// cut off and drafts if there were any, pages against pages without sharing,
// tail copies and the share of time outside the model. Tokens per step count
// only sequences that speculate, as in
// benchmarks/speculate/speculation_report.h; steps of the draft model do not
// count as steps of the model.
std::string FormatFigures(const EngineStats& stats, int num_requests,
                          absl::Duration wall_time);

}  // namespace espalier::cli
