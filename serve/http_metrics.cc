#include "serve/http_metrics.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

void AppendFamily(std::string_view name, std::string_view type,
                  std::string_view help, std::string* text) {
  absl::StrAppend(text, "# HELP espalier:http_", ToAbsl(name), " ",
                  ToAbsl(help), "\n# TYPE espalier:http_", ToAbsl(name), " ",
                  ToAbsl(type), "\n");
}

void Append(std::string_view name, std::string_view type, int64_t value,
            std::string_view help, std::string* text) {
  AppendFamily(name, type, help, text);
  absl::StrAppend(text, "espalier:http_", ToAbsl(name), " ", value, "\n");
}

}  // namespace

std::string HttpMetrics(const http::ServerStats& stats) {
  std::string text;
  Append("connections", "gauge", stats.open_connections, "Open connections.",
         &text);
  Append("exchanges_running", "gauge", stats.running_exchanges,
         "Calls that are being answered.", &text);
  Append("connections_accepted_total", "counter", stats.accepted_connections,
         "Connections accepted, those refused included.", &text);
  Append("connections_refused_total", "counter", stats.refused_connections,
         "Connections refused for their number.", &text);
  AppendFamily("responses_total", "counter", "Answers, by class of status.",
               &text);
  for (int i = 1; i <= 5; ++i) {
    absl::StrAppend(&text, "espalier:http_responses_total{code=\"", i, "xx\"} ",
                    stats.responses[i], "\n");
  }
  Append("clients_gone_total", "counter", stats.clients_gone,
         "Clients that went, or read too slowly, while they were answered.",
         &text);
  Append("slow_readers_total", "counter", stats.slow_readers,
         "Clients cut off because they read too slowly.", &text);
  Append("timeouts_total", "counter", stats.timeouts,
         "Requests that did not come whole in time.", &text);
  Append("received_bytes_total", "counter", stats.bytes_received,
         "Bytes received.", &text);
  Append("sent_bytes_total", "counter", stats.bytes_sent, "Bytes sent.", &text);
  return text;
}

}  // namespace espalier::serve
