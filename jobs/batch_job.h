// BatchJob: a batch while it runs: which of its calls are open, and the files
// that their results are appended to.
//
// The results are the only record of what is done. They are read when a job is
// opened, whatever ended it before: a result that was cut off is dropped, and
// its call made again; no other call is made twice.
//
// Thread safety: one user.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/durable_file.h"
#include "jobs/file_store.h"
#include "jobs/line_file.h"
#include "openai/batch_lines.h"
#include "openai/stored_objects.h"

namespace espalier::jobs {

struct BatchLimits {
  int64_t max_lines = 50'000;
  int64_t max_line_bytes = 16 << 20;
};

// Checks the input of a batch: sets its num_calls, or its errors, of which
// there are a few at most. Errors: kUnavailable.
absl::Status CheckBatchInput(const std::string& path, const BatchLimits& limits,
                             openai::Batch* batch);

class BatchJob {
 public:
  struct Call {
    int64_t line = 0;
    std::string custom_id;
    std::string body;
  };
  // Where results go: of calls that succeeded, and of others.
  struct Paths {
    std::string output;
    std::string errors;
  };

  // `store` outlives it, and counts the bytes of its results.
  // Errors: kUnavailable.
  static absl::StatusOr<std::unique_ptr<BatchJob>> Open(
      const openai::Batch& batch, const Paths& paths, const BatchLimits& limits,
      FileStore* store);
  ~BatchJob();
  BatchJob(const BatchJob&) = delete;
  BatchJob& operator=(const BatchJob&) = delete;

  // A call that is open; nothing if there is none. Errors: kUnavailable.
  absl::StatusOr<std::optional<Call>> Next();
  // The call is open again.
  void PutBack(Call call);
  // Errors: kUnavailable; then the job must be opened again.
  // kResourceExhausted if there is no room.
  absl::Status Add(const Call& call, const openai::BatchOutcome& outcome);
  // Errors: kUnavailable.
  absl::Status Sync();

  int64_t num_completed() const { return num_completed_; }
  int64_t num_failed() const { return num_failed_; }

 private:
  BatchJob(openai::Batch batch, FileStore* store);
  // Reads the results at `path`, and opens it after the last whole one.
  absl::StatusOr<AppendedFile> Recover(const std::string& path,
                                       int64_t* num_results);

  const openai::Batch batch_;
  FileStore* const store_;
  std::unique_ptr<LineFile> input_;
  int64_t next_line_ = 0;
  std::vector<bool> is_done_;  // [lines so far]
  std::deque<Call> put_back_;
  AppendedFile output_;
  AppendedFile errors_;
  int64_t num_completed_ = 0;
  int64_t num_failed_ = 0;
  int64_t num_reserved_ = 0;  // bytes, of the store
};

}  // namespace espalier::jobs
