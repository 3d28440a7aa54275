#include "examples/cli/text_printer.h"

#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier::cli {
namespace {

// Which text failed, by its beginning, and why.
void PrintFailure(const std::string& text, const absl::Status& status) {
  const std::string shown = IsUtf8(text) ? text : ForTerminal(text);
  PrintToStderr(
      Concat("espalier: \"", Shown(shown), "\": ", Message(status), "\n"));
}

}  // namespace

void TextPrinter::Begin(const std::string& text) {
  TellFailures();
  if (!std::exchange(is_first_, false)) output_.Write("\n");
  output_.Write(text + "\n");
}

void TextPrinter::End(const std::string& text, const absl::Status& status) {
  const bool is_lost = status.ok() && output_.failed();
  if (is_lost || status.code() == absl::StatusCode::kCancelled) return;
  ++outcome_.num_answered;
  if (status.ok()) return;
  ++outcome_.num_failed;
  if (status != error_) TellFailures();
  error_ = status;
  failed_.push_back(text);
}

Outcome TextPrinter::Finish() {
  if (failed_.size() == num_texts_ && num_texts_ > 1) {
    PrintToStderr(Concat("espalier: each of the ", num_texts_,
                         " texts: ", Message(error_), "\n"));
  } else {
    TellFailures();
  }
  return outcome_;
}

void TextPrinter::TellFailures() {
  if (failed_.empty()) return;
  output_.Flush();  // what came before comes before
  for (const std::string& text : failed_) PrintFailure(text, error_);
  failed_.clear();
}

}  // namespace espalier::cli
