// PrometheusText: the statistics of an engine in Prometheus's exposition format
// 0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats, which is
// served with the content type kPrometheusContentType, or read from a file.
//
// Families named vllm: equal vLLM's in name, labels and buckets, so that its
// routers and dashboards work with this engine. Families named espalier: have
// no equivalent in vLLM: rows of beams, shared pages, recomputed tokens. The
// list is in docs/metrics.md.
#pragma once

#include <span>
#include <string>

#include "batcher/engine_stats.h"

namespace espalier {

inline constexpr char kPrometheusContentType[] =
    "text/plain; version=0.0.4; charset=utf-8";

// Label that every sample gets. vLLM's are model_name and engine.
struct MetricLabel {
  std::string name;   // [a-zA-Z_][a-zA-Z0-9_]*, not beginning with "__"
  std::string value;  // any UTF-8
};

// A pure function: equal statistics give equal texts. Every family is always
// present, with zeros at first. REQUIRES: label names are valid and distinct,
// and none is a label of a family: block_size, code, direction,
// finished_reason, kind, le, num_gpu_blocks, phase, position, reason or state.
std::string PrometheusText(const EngineStats& stats,
                           std::span<const MetricLabel> labels = {});

}  // namespace espalier
