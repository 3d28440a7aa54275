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
  // Without a tokenizer texts stay empty.
  // Errors: as TraceWriter::Open.
  static absl::StatusOr<std::unique_ptr<TraceRecorder>> Open(
      const std::string& path, std::shared_ptr<const Tokenizer> tokenizer);

  void On(const TraceEvent& event) override;

  // Errors: as TraceWriter::Close.
  absl::Status Close() { return writer_->Close(); }

 private:
  TraceRecorder(std::unique_ptr<TraceWriter> writer,
                std::shared_ptr<const Tokenizer> tokenizer);

  const std::unique_ptr<TraceWriter> writer_;
  const std::shared_ptr<const Tokenizer> tokenizer_;  // or null
};

}  // namespace espalier::cli
