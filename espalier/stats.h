// Statistics of an engine or a generator: EngineStats, which Engine::Stats and
// Generator::Stats return, and PrometheusText, which formats them for
// Prometheus.
#pragma once

#include "batcher/engine_stats.h"
#include "batcher/prometheus_text.h"
#include "espalier/generator_stats.h"
