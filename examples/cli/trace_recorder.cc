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
  event->text = tokenizer.Piece(event->token);
}

void AddText(const Tokenizer&, TracePages*) {}
void AddText(const Tokenizer&, TraceEnd*) {}

}  // namespace

absl::StatusOr<std::unique_ptr<TraceRecorder>> TraceRecorder::Open(
    const std::string& path, std::shared_ptr<const Tokenizer> tokenizer) {
  ASSIGN_OR_RETURN(std::unique_ptr<TraceWriter> writer,
                   TraceWriter::Open(path));
  return std::unique_ptr<TraceRecorder>(
      new TraceRecorder(std::move(writer), std::move(tokenizer)));
}

TraceRecorder::TraceRecorder(std::unique_ptr<TraceWriter> writer,
                             std::shared_ptr<const Tokenizer> tokenizer)
    : writer_(std::move(writer)), tokenizer_(std::move(tokenizer)) {}

void TraceRecorder::On(const TraceEvent& event) {
  if (tokenizer_ == nullptr) return writer_->On(event);
  TraceEvent with_text = event;
  std::visit([&](auto& e) { AddText(*tokenizer_, &e); }, with_text);
  writer_->On(with_text);
}

}  // namespace espalier::cli
