// What an engine has done as text for Prometheus: the exposition format 0.0.4,
// https://prometheus.io/docs/instrumenting/exposition_formats, which is served
// with the content type kPrometheusContentType, or read from a file.
//
// Families named vllm: are vLLM's, by name, label and bucket, so that routers
// and dashboards made for it know this engine, too; those named espalier: say
// what vLLM has no word for: rows of beams, shared pages, tokens fed again. The
// list is in docs/metrics.md.
#pragma once

#include <span>
#include <string>

#include "batcher/engine_stats.h"

namespace espalier {

inline constexpr char kPrometheusContentType[] =
    "text/plain; version=0.0.4; charset=utf-8";

// A label of every sample. vLLM's are model_name and engine.
struct MetricLabel {
  std::string name;   // [a-zA-Z_][a-zA-Z0-9_]*, not beginning with "__"
  std::string value;  // any UTF-8
};

// A pure function: the same statistics give the same text. Each family is there
// from the beginning, with zeros.
// REQUIRES: label names are as above, each once, and none is a label of a
// family: block_size, code, direction, finished_reason, kind, le,
// num_gpu_blocks, phase, position, reason or state.
std::string PrometheusText(const EngineStats& stats,
                           std::span<const MetricLabel> labels = {});

}  // namespace espalier
