// TraceRecorder: a trace on its way to a file, with the texts of tokens, which
// an engine does not know.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "exec_request/trace_json.h"
#include "text/tokenizer.h"

namespace espalier::cli {

class TraceRecorder : public TraceSink {
 public:
  // `tokenizer` outlives this; null: texts stay empty.
  // Errors: as TraceWriter::Open.
  static absl::StatusOr<std::unique_ptr<TraceRecorder>> Open(
      const std::string& path, const Tokenizer* tokenizer);

  void On(const TraceEvent& event) override;

  // Errors: as TraceWriter::Close.
  absl::Status Close() { return writer_->Close(); }

 private:
  TraceRecorder(std::unique_ptr<TraceWriter> writer,
                const Tokenizer* tokenizer);

  const std::unique_ptr<TraceWriter> writer_;
  const Tokenizer* const tokenizer_;
};

}  // namespace espalier::cli
