// SpeculationPairs: the requests of a file as verify-speculation runs them,
// each without speculation and with, complete and with seeds of their own.
//
//   SpeculationPairs requests(runtime, {.method = SpeculationMethod::kNgram});
//   RETURN_IF_ERROR(requests.Read("requests.jsonl"));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "examples/cli/runtime.h"
#include "request/json/request_json.h"
#include "request/speculation_params.h"

namespace espalier::cli {

// `status`, of that line of the file.
absl::Status OnLine(const absl::Status& status, const std::string& file,
                    int64_t line);

// A request of the file, twice.
struct SpeculationPair {
  int64_t line = 0;
  RequestBody without;
  RequestBody with;
  bool by_distribution = false;  // else the two give the same, to the bit
};

// Only requests speculate here that say so or that the default lets.
class SpeculationPairs {
 public:
  SpeculationPairs(const Runtime& runtime, const SpeculationParams& speculate)
      : runtime_(runtime), default_(speculate) {}

  // Errors: what is wrong with the file, or with a line of it.
  absl::Status Read(const std::string& path);

  std::vector<SpeculationPair>& pairs() { return pairs_; }
  std::vector<std::string>& left_out() { return left_out_; }

 private:
  absl::Status Add(const std::string& text, int64_t line);
  absl::Status Complete(RequestBody body, int64_t line);
  void LeaveOut(int64_t line, std::string_view why) {
    left_out_.push_back(Concat("line ", line, ": ", why));
  }

  const Runtime& runtime_;
  const SpeculationParams default_;
  std::vector<SpeculationPair> pairs_;
  std::vector<std::string> left_out_;
};

}  // namespace espalier::cli
