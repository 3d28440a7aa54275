// Options of http_load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::http_load {

enum class Mode {
  kClosed,       // each connection sends a request when it has its answer
  kOpen,         // requests come at a rate, whatever the server does
  kStreams,      // as closed, of streams: events are timed, too
  kIdle,         // connections that send nothing
  kSlowHeaders,  // a byte of the headers at a time
  kSlowBodies,   // a byte of the body at a time
  kSlowReaders,  // a few bytes of the answer at a time
  kDroppers,     // close or reset at a random byte of request or answer
};

struct LoadOptions {
  std::string host = "127.0.0.1";  // an IPv4 address
  int port = 0;
  std::string path = "/";
  std::string body;  // POST if there is one
  // Each a POST, in turn, from the first again; they go before `body`.
  std::vector<std::string> bodies;
  std::string headers;  // more of them, each with its line end
  Mode mode = Mode::kClosed;
  std::string mode_name = "closed";
  int connections = 1;
  double seconds = 5;
  int64_t requests = 0;          // at most, with their responses; 0: no limit
  double rate = 1000;            // kOpen: requests a second
  double interval_ms = 100;      // slow modes: between two bytes
  unsigned seed = 1;             // random drops and requests
  bool new_connections = false;  // one for each request
};

// Errors: kInvalidArgument naming the option and its value.
absl::StatusOr<LoadOptions> ReadLoadOptions(int argc, char** argv);

extern const char kUsage[];

}  // namespace espalier::http_load
