#include "examples/cli/runtime/trace_recorder.h"

#include <utility>

#include "base/status.h"
#include "trace/token_texts.h"

namespace espalier::cli {

TraceRecorder::TraceRecorder(std::string path,
                             std::shared_ptr<const Tokenizer> tokenizer)
    : path_(std::move(path)), tokenizer_(std::move(tokenizer)) {}

absl::Status TraceRecorder::Open() {
  ASSIGN_OR_RETURN(writer_, TraceWriter::Open(path_));
  return absl::OkStatus();
}

void TraceRecorder::On(const TraceEvent& event) {
  if (writer_ == nullptr) return;
  if (tokenizer_ == nullptr) return writer_->On(event);
  TraceEvent with_text = event;
  AddTokenTexts(*tokenizer_, &with_text);
  writer_->On(with_text);
}

absl::Status TraceRecorder::Close() {
  return writer_ == nullptr ? absl::OkStatus() : writer_->Close();
}

}  // namespace espalier::cli
