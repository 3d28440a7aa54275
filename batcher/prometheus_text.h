// PrometheusText: the statistics of an engine in Prometheus's exposition format
// 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats). A server
// sends the text with the content type kPrometheusContentType, or a command
// writes it to a file.
//
// Families whose names begin with "vllm:" have vLLM's names, labels and buckets
// (vllm:cache_config_info only some of its labels), so that its routers and
// dashboards work with this engine. Families that begin with "espalier:" have
// no equivalent in vLLM, such as rows of beams, shared pages and recomputed
// tokens. docs/metrics.md lists all families.
#pragma once

#include <span>
#include <string>

#include "batcher/engine_stats.h"

namespace espalier {

inline constexpr char kPrometheusContentType[] =
    "text/plain; version=0.0.4; charset=utf-8";

// A label of every sample. vLLM's samples have model_name and engine.
struct MetricLabel {
  std::string name;   // [a-zA-Z_][a-zA-Z0-9_]*, not beginning with "__"
  std::string value;  // any UTF-8; is escaped
};

// Returns the text of `stats`. A pure function: equal statistics give equal
// texts. Every family is always present; counters and histograms start at zero.
// REQUIRES: label names are valid and distinct, and none is a label of a
// family: block_size, code, direction, finished_reason, kind, le,
// num_gpu_blocks, phase, position, reason or state.
std::string PrometheusText(const EngineStats& stats,
                           std::span<const MetricLabel> labels = {});

}  // namespace espalier
