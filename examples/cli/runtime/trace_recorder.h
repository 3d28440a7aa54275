// TraceRecorder: writes a trace to a file, with the texts of tokens, which an
// engine does not have.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "text/tokenizer/tokenizer.h"
#include "trace/trace_json.h"

namespace espalier::cli {

class TraceRecorder : public TraceSink {
 public:
  // For the file at `path`. Without a tokenizer texts stay empty.
  TraceRecorder(std::string path, std::shared_ptr<const Tokenizer> tokenizer);

  // Errors: as TraceWriter::Open.
  absl::Status Open();

  // Events that come before Open, or after Close, are lost.
  void On(const TraceEvent& event) override;

  // Errors: as TraceWriter::Close.
  absl::Status Close();

 private:
  const std::string path_;
  std::unique_ptr<TraceWriter> writer_;               // null until it is open
  const std::shared_ptr<const Tokenizer> tokenizer_;  // or null
};

}  // namespace espalier::cli
