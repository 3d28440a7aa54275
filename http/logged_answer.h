// Of a connection: what it keeps of the present answer for the log.
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
