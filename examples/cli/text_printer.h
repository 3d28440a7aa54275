// TextPrinter: prints what became of several texts, one after the other:
//   Where is the station?
//     -0.1529  Où est la gare ?
//
//   It rains.
//     -0.0934  Il pleut.
// A blank line stands between them. Failures go to stderr. Those that are all
// alike wait until something else is printed: what fails every text is told
// once, at the end.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "examples/cli/output.h"

namespace espalier::cli {

// What became of texts. Those that were cancelled, or could not be written,
// count nowhere.
struct Outcome {
  int num_answered = 0;  // the failed ones included
  int num_failed = 0;
};

class TextPrinter {
 public:
  // `output` outlives this.
  TextPrinter(size_t num_texts, Output* output)
      : num_texts_(num_texts), output_(*output) {}

  // Begins the next text that there is something to show of, with itself.
  void Begin(const std::string& text);

  // The text has ended: as it should, or with an error, which is told. One that
  // was cancelled is left out.
  void End(const std::string& text, const absl::Status& status);

  bool has_failures() const { return outcome_.num_failed > 0; }

  // No more texts come. Called once.
  Outcome Finish();

 private:
  void TellFailures();

  const size_t num_texts_;
  Output& output_;
  bool is_first_ = true;
  Outcome outcome_;
  // Texts that failed, all with one error, and were not told of yet.
  std::vector<std::string> failed_;
  absl::Status error_;
};

}  // namespace espalier::cli
