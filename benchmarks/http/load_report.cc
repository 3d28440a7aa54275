#include "benchmarks/http/load_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace espalier::http_load {

namespace {

std::string Percentiles(std::vector<float>* values) {
  if (values->empty()) return "null";
  std::sort(values->begin(), values->end());
  const auto at = [&](double share) {
    const auto last = static_cast<double>(values->size() - 1);
    return (*values)[static_cast<size_t>(share * last)];
  };
  return absl::StrFormat(
      R"({"p50": %.3f, "p90": %.3f, "p99": %.3f, "p99.9": %.3f, "max": %.3f})",
      at(0.5), at(0.9), at(0.99), at(0.999), values->back());
}

std::string Counts(const std::map<std::string, int64_t>& counts) {
  std::string text = "{";
  for (const auto& [name, count] : counts) {
    if (text.size() > 1) text += ", ";
    absl::StrAppendFormat(&text, R"("%s": %d)", name, count);
  }
  return text + "}";
}

std::string PercentilesBy(std::map<std::string, std::vector<float>>* values) {
  std::string text = "{";
  for (auto& [name, of_name] : *values) {
    if (text.size() > 1) text += ", ";
    absl::StrAppendFormat(&text, R"("%s": %s)", name, Percentiles(&of_name));
  }
  return text + "}";
}

}  // namespace

std::string LoadReport::ToJson(const LoadOptions& options) {
  const auto rate = [&](int64_t count) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  return absl::StrFormat(
      R"({"mode": "%s", "connections": %d, "seconds": %.3f, )"
      R"("responses": %d, "responses_per_s": %.0f, "events": %d, )"
      R"("events_per_s": %.0f, "bytes_received": %d, "opened": %d, )"
      R"("most_open": %d, "drops": %d, "latency_ms": %s, )"
      R"("latency_by_status_ms": %s, )"
      R"("first_byte_ms": %s, "event_gap_ms": %s, "statuses": %s, )"
      R"("errors": %s})",
      options.mode_name, options.connections, seconds, responses,
      rate(responses), events, rate(events), bytes_received, opened, most_open,
      drops, Percentiles(&latencies), PercentilesBy(&latencies_by_status),
      Percentiles(&first_bytes), Percentiles(&event_gaps), Counts(statuses),
      Counts(errors));
}

}  // namespace espalier::http_load
