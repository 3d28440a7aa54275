#include "serve/server_metrics.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

void AppendFamily(std::string_view name, std::string_view type,
                  std::string_view help, std::string* text) {
  absl::StrAppend(text, "# HELP espalier:", ToAbsl(name), " ", ToAbsl(help),
                  "\n# TYPE espalier:", ToAbsl(name), " ", ToAbsl(type), "\n");
}

void Append(std::string_view name, std::string_view type,
            const absl::AlphaNum& value, std::string_view help,
            std::string* text) {
  AppendFamily(name, type, help, text);
  absl::StrAppend(text, "espalier:", ToAbsl(name), " ", value, "\n");
}

}  // namespace

std::string ServerMetrics(const http::ServerStats& stats,
                          const CompileQueue::Stats& compiling,
                          const SpeechMetrics::Stats& speech) {
  std::string text;
  Append("http_connections", "gauge", stats.open_connections,
         "Open connections.", &text);
  Append("http_exchanges_running", "gauge", stats.running_exchanges,
         "Calls that are being answered.", &text);
  Append("http_connections_accepted_total", "counter",
         stats.accepted_connections,
         "Connections accepted, those refused included.", &text);
  Append("http_connections_refused_total", "counter", stats.refused_connections,
         "Connections refused for their number.", &text);
  AppendFamily("http_responses_total", "counter",
               "Answers, by class of status.", &text);
  for (int i = 1; i <= 5; ++i) {
    absl::StrAppend(&text, "espalier:http_responses_total{code=\"", i, "xx\"} ",
                    stats.responses[i], "\n");
  }
  Append("http_clients_gone_total", "counter", stats.clients_gone,
         "Clients that went, or read too slowly, while they were answered.",
         &text);
  Append("http_slow_readers_total", "counter", stats.slow_readers,
         "Clients cut off because they read too slowly.", &text);
  Append("http_timeouts_total", "counter", stats.timeouts,
         "Requests that did not come whole in time.", &text);
  Append("http_received_bytes_total", "counter", stats.bytes_received,
         "Bytes received.", &text);
  Append("http_sent_bytes_total", "counter", stats.bytes_sent, "Bytes sent.",
         &text);
  Append("constraint_calls_waiting", "gauge", compiling.num_waiting,
         "Calls that wait until their constraint is compiled.", &text);
  Append("constraint_waits_total", "counter", compiling.num_waits,
         "Calls that have waited for that, however they ended.", &text);
  Append("constraint_wait_seconds_total", "counter",
         absl::ToDoubleSeconds(compiling.time_waited),
         "Time that they have waited.", &text);
  Append("constraints_compiled_total", "counter", compiling.num_compiled,
         "Constraints compiled for waiting calls, errors included.", &text);
  Append("constraint_compile_seconds_total", "counter",
         absl::ToDoubleSeconds(compiling.time_compiled),
         "Time that threads have spent on that.", &text);
  Append("transcriptions_waiting", "gauge", speech.num_waiting,
         "Transcriptions that wait for others to end.", &text);
  Append("transcriptions_running", "gauge", speech.num_running,
         "Transcriptions that run.", &text);
  Append("transcriptions_total", "counter", speech.num_ended,
         "Transcriptions that ran and have ended, errors included.", &text);
  Append("transcribed_audio_seconds_total", "counter", speech.audio_seconds,
         "Audio of transcriptions that came to their end.", &text);
  Append("transcription_seconds_total", "counter",
         absl::ToDoubleSeconds(speech.time_running), "Time that they took.",
         &text);
  Append("transcribed_windows_total", "counter", speech.num_windows,
         "Windows of that audio.", &text);
  Append("transcription_fallbacks_total", "counter", speech.num_fallbacks,
         "Windows that were decoded again at a higher temperature.", &text);
  return text;
}

}  // namespace espalier::serve
