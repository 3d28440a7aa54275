#include "benchmarks/http/load_options.h"

#include <charconv>
#include <map>
#include <string_view>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"

namespace espalier::http_load {

const char kUsage[] =
    R"(usage: http_load --port PORT [options]

Loads an HTTP server from one thread, and prints one line of JSON: rates,
percentiles in milliseconds, errors by kind.

  --host ADDRESS      127.0.0.1
  --path PATH         /
  --body FILE         of a POST; without it requests are GET
  --bodies FILE       one a line, of a POST each, in turn
  --requests N        ends when so many are answered, before --seconds
  --header 'K: V'     one more header; may be repeated
  --mode MODE         closed: a request when the last is answered (default)
                      open: --rate requests a second, whatever the server does;
                            latencies are from when a request was due
                      streams: as closed; times events, too
                      idle: connections that send nothing
                      slow-headers, slow-bodies: a byte every --interval
                      slow-readers: read 16 bytes every --interval
                      droppers: close or reset at a random byte
  --connections N     1
  --seconds S         5
  --rate R            1000 requests a second
  --interval MS       100
  --seed N            1
  --new-connections   one for each request
)";

namespace {

const std::map<std::string_view, Mode>& Modes() {
  static const std::map<std::string_view, Mode> modes = {
      {"closed", Mode::kClosed},
      {"open", Mode::kOpen},
      {"streams", Mode::kStreams},
      {"idle", Mode::kIdle},
      {"slow-headers", Mode::kSlowHeaders},
      {"slow-bodies", Mode::kSlowBodies},
      {"slow-readers", Mode::kSlowReaders},
      {"droppers", Mode::kDroppers},
  };
  return modes;
}

template <typename T>
absl::Status ReadNumber(std::string_view option, std::string_view text, T least,
                        T* value) {
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc() && last == end && *value >= least) {
    return absl::OkStatus();
  }
  return InvalidArgument(option, " must be a number of at least ", least,
                         ", got \"", text, "\"");
}

absl::Status ReadOption(std::string_view option, std::string_view value,
                        LoadOptions* options) {
  if (option == "--host") {
    options->host = value;
  } else if (option == "--path") {
    options->path = value;
  } else if (option == "--header") {
    options->headers += Concat(value, "\r\n");
  } else if (option == "--body") {
    ASSIGN_OR_RETURN(options->body, ReadFile(std::string(value), 64 << 20));
  } else if (option == "--bodies") {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFile(std::string(value), 64 << 20));
    options->bodies = absl::StrSplit(text, '\n', absl::SkipEmpty());
    if (options->bodies.empty()) {
      return InvalidArgument("--bodies ", value, " has no line");
    }
  } else if (option == "--requests") {
    return ReadNumber(option, value, int64_t{1}, &options->requests);
  } else if (option == "--port") {
    return ReadNumber(option, value, 1, &options->port);
  } else if (option == "--connections") {
    return ReadNumber(option, value, 1, &options->connections);
  } else if (option == "--seconds") {
    return ReadNumber(option, value, 0.0, &options->seconds);
  } else if (option == "--rate") {
    return ReadNumber(option, value, 0.001, &options->rate);
  } else if (option == "--interval") {
    return ReadNumber(option, value, 0.0, &options->interval_ms);
  } else if (option == "--seed") {
    return ReadNumber(option, value, 0u, &options->seed);
  } else if (option == "--mode") {
    const auto mode = Modes().find(value);
    if (mode == Modes().end()) {
      return InvalidArgument("there is no --mode ", value);
    }
    options->mode = mode->second;
    options->mode_name = value;
  } else {
    return InvalidArgument("there is no option ", option);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadOptions> ReadLoadOptions(int argc, char** argv) {
  LoadOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--new-connections") {
      options.new_connections = true;
      continue;
    }
    if (i + 1 == argc) return InvalidArgument(option, " has no value");
    RETURN_IF_ERROR(ReadOption(option, argv[++i], &options));
  }
  if (options.port == 0) return InvalidArgument("--port is missing");
  return options;
}

}  // namespace espalier::http_load
