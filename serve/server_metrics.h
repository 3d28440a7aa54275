// Counts of a server as text for Prometheus, beside the engine's
// (batcher/prometheus_text.h).
#pragma once

#include <string>

#include "http/server.h"
#include "serve/compile_queue.h"
#include "serve/speech_metrics.h"

namespace espalier::serve {

// A pure function.
std::string ServerMetrics(const http::ServerStats& http,
                          const CompileQueue::Stats& compiling,
                          const SpeechMetrics::Stats& speech);

}  // namespace espalier::serve
