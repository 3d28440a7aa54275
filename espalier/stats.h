// What an engine or a generator has done, and holds now: EngineStats, which
// Engine::Stats and Generator::Stats return, and PrometheusText, which writes
// it for Prometheus.
#pragma once

#include "batcher/engine_stats.h"
#include "batcher/prometheus_text.h"
#include "espalier/generator_stats.h"
