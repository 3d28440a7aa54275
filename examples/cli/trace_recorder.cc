#include "examples/cli/trace_recorder.h"

#include <utility>

#include "base/status.h"

namespace espalier::cli {
namespace {

void AddText(const Tokenizer& tokenizer, TraceRequest* event) {
  absl::StatusOr<std::string> text = tokenizer.Decode(event->prompt_tokens);
  if (text.ok()) event->prompt = *std::move(text);
}

void AddText(const Tokenizer& tokenizer, TraceCandidate* event) {
  event->text = tokenizer.Spelling(event->token);
}

void AddText(const Tokenizer&, TracePages*) {}
void AddText(const Tokenizer&, TraceEnd*) {}
void AddText(const Tokenizer&, TracePreempted*) {}
void AddText(const Tokenizer&, TraceResumed*) {}

}  // namespace

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
  std::visit([&](auto& e) { AddText(*tokenizer_, &e); }, with_text);
  writer_->On(with_text);
}

absl::Status TraceRecorder::Close() {
  return writer_ == nullptr ? absl::OkStatus() : writer_->Close();
}

}  // namespace espalier::cli
