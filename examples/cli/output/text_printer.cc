#include "examples/cli/output/text_printer.h"

#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier::cli {
namespace {

// Failures that are listed one by one; a pipe may bring any number.
constexpr size_t kMaxListedTexts = 1000;

// Carriage returns alone, or before a line feed, are line breaks too.
std::string OnOneLine(const std::string& text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool goes_on = text[i] == '\r' && text[i + 1] == '\n';
    if (goes_on) continue;
    const bool breaks = text[i] == '\n' || text[i] == '\r';
    line += breaks ? "↵" : std::string(1, text[i]);
  }
  return line;
}

void PrintError(const std::string& what, const absl::Status& error) {
  PrintToStderr(Concat("espalier: ", what, ": ", Message(error), "\n"));
}

}  // namespace

void TextPrinter::Begin(const std::string& text) {
  ReportFailures();
  if (!std::exchange(is_first_, false)) output_.Write("\n");
  output_.Write(OnOneLine(text) + "\n");
}

void TextPrinter::End(const std::string& text, const absl::Status& status) {
  const bool is_lost = status.ok() && output_.failed();
  if (is_lost || status.code() == absl::StatusCode::kCancelled) return;
  ++outcome_.num_answered;
  if (status.ok()) return;
  ++outcome_.num_failed;
  if (status != error_) ReportFailures();
  error_ = status;
  ++num_unreported_;
  if (failed_.size() < kMaxListedTexts) {
    failed_.push_back(Shown(IsUtf8(text) ? text : ForTerminal(text)));
  }
}

Outcome TextPrinter::Finish(int64_t num_read) {
  outcome_.num_read = num_read;
  if (num_unreported_ == num_read && num_read > 1) {
    PrintError(Concat("each of the ", num_read, " texts"), error_);
  } else {
    ReportFailures();
  }
  return outcome_;
}

void TextPrinter::ReportFailures() {
  if (num_unreported_ == 0) return;
  output_.Flush();  // what came before comes before
  for (const std::string& text : failed_) {
    PrintError(Concat("\"", text, "\""), error_);
  }
  const int64_t num_more = num_unreported_ - std::ssize(failed_);
  if (num_more > 0) {
    PrintError("and " + Pluralize(num_more, "more text"), error_);
  }
  failed_.clear();
  num_unreported_ = 0;
}

}  // namespace espalier::cli
