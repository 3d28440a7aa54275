// Logged: the state of a connection's present answer that the log needs.
#pragma once

#include <cstdint>
#include <string>

#include "base/stopwatch.h"
#include "http/connection.h"

namespace espalier::http {

struct Connection::Logged {
  std::string client;
  std::string method;
  std::string path;
  std::string note = {};
  int status = 0;
  int64_t num_bytes = 0;
  Stopwatch since_begin = {};
};

}  // namespace espalier::http
