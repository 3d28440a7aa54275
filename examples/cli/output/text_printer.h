// TextPrinter: prints the results of several texts, one after the other:
//   Where is the station?
//     -0.1529  Où est la gare ?
//
//   It rains.
//     -0.0934  Il pleut.
// A blank line separates them. Failures go to stderr. While all failures are
// equal, printing them waits for the first other output: an error of every text
// is printed once, at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "examples/cli/output/output.h"

namespace espalier::cli {

// Outcome of a run. Cancelled texts, and answers that could not be written,
// count in num_read only.
struct Outcome {
  int64_t num_read = 0;
  int64_t num_answered = 0;  // the failed ones included
  int64_t num_failed = 0;
};

class TextPrinter {
 public:
  // `output` outlives this.
  explicit TextPrinter(Output* output) : output_(*output) {}

  // Begins the next text that there is something to show of, with itself on a
  // line: "↵" stands for its line breaks.
  void Begin(const std::string& text);

  // Ends the text, successfully or with an error, which is printed. A cancelled
  // text prints nothing.
  void End(const std::string& text, const absl::Status& status);

  bool has_failures() const { return outcome_.num_failed > 0; }

  // No more texts come; there were `num_read`. Called once.
  Outcome Finish(int64_t num_read);

 private:
  void ReportFailures();

  Output& output_;
  bool is_first_ = true;
  Outcome outcome_;
  // Texts that failed, all with one error, and were not reported yet: the
  // beginnings of the first ones, and how many there are.
  std::vector<std::string> failed_;
  int64_t num_unreported_ = 0;
  absl::Status error_;
};

}  // namespace espalier::cli
