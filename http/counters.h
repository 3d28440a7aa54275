// Counters of one thread of the server, for readers on any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "http/server.h"

namespace espalier::http {

// A number that one thread changes.
class Counter {
 public:
  void Add(int64_t count) {
    // No other thread writes between the two.
    value_.store(value() + count, std::memory_order_relaxed);
  }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

struct alignas(64) Counters {
  Counter open_connections;
  Counter running_exchanges;
  Counter accepted_connections;
  Counter refused_connections;
  Counter responses[6];
  Counter clients_gone;
  Counter slow_readers;
  Counter timeouts;
  Counter bytes_received;
  Counter bytes_sent;

  void AddTo(ServerStats* stats) const;
};

}  // namespace espalier::http
