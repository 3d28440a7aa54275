// Measurements, as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/http/load_options.h"

namespace espalier::http_load {

struct LoadReport {
  double seconds = 0;  // measured time
  int64_t opened = 0;  // connections
  int64_t responses = 0;
  int64_t events = 0;
  int64_t bytes_received = 0;
  int64_t drops = 0;      // by us, on purpose
  int64_t most_open = 0;  // connections at a time
  std::map<std::string, int64_t> statuses;
  std::map<std::string, int64_t> errors;  // by kind

  // Milliseconds.
  std::vector<float> latencies;  // request to end of answer
  std::map<std::string, std::vector<float>> latencies_by_status;
  std::vector<float> first_bytes;  // request to the first byte of the answer
  std::vector<float> event_gaps;   // between reads that brought events

  // One line.
  std::string ToJson(const LoadOptions& options);
};

}  // namespace espalier::http_load
