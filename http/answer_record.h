// AnswerRecord: an answer that a server has given, for a log of requests.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/time/time.h"

namespace espalier::http {

struct AnswerRecord {
  std::string_view client = {};  // its address
  // As sent, of any bytes that are no control characters; empty if the request
  // could not be read so far.
  std::string_view method = {};
  std::string_view path = {};
  std::string_view note = {};  // Exchange::set_note
  int status = 0;              // 0: the client had left before it was answered
  int64_t num_bytes = 0;  // that the system took for the client, heads included
  absl::Duration elapsed = {};  // since the request had arrived
  bool is_whole = false;        // else it was cut off
};

// Called once for each request that was answered, refused or abandoned by its
// client, as soon as it ends. Called on any thread; must not throw or block.
using AnswerLog = std::function<void(const AnswerRecord&)>;

}  // namespace espalier::http
