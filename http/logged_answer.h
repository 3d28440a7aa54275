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
  int64_t sent_before = 0;  // bytes of earlier answers of the connection
  Stopwatch since_begin = {};
};

}  // namespace espalier::http
