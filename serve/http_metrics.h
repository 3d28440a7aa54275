// Counts of an HTTP server as text for Prometheus, beside the engine's
// (batcher/prometheus_text.h).
#pragma once

#include <string>

#include "http/server.h"

namespace espalier::serve {

// A pure function.
std::string HttpMetrics(const http::ServerStats& stats);

}  // namespace espalier::serve
