// BatchJob: a batch while it runs: which of its calls are open, and the files
// that their results are appended to.
//
// The results are the only record of what is done. They are read when a job is
// opened, whatever ended it before: a result that was cut off is dropped. Calls
// without a whole result are made again, also those that ran meanwhile.
//
// Thread safety: one user.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/durable_file.h"
#include "base/hash.h"
#include "jobs/file_store.h"
#include "jobs/line_file.h"
#include "openai/batch_lines.h"
#include "openai/stored_objects.h"

namespace espalier::jobs {

struct BatchLimits {
  int64_t max_lines = 50'000;
  int64_t max_line_bytes = 16 << 20;
};

// Checks the input of a batch, a slice at a time.
class BatchInputCheck {
 public:
  // Errors: kUnavailable.
  static absl::StatusOr<std::unique_ptr<BatchInputCheck>> Open(
      const std::string& path, const std::string& endpoint,
      const BatchLimits& limits);

  // True once all is checked.
  // Errors: kUnavailable.
  absl::StatusOr<bool> Continue(SliceEnd end = kNoSliceEnd);
  int64_t num_calls() const { return num_calls_; }
  // Empty if the input is good; a few at most.
  const std::vector<openai::BatchError>& errors() const { return errors_; }

 private:
  BatchInputCheck(std::string endpoint, const BatchLimits& limits)
      : endpoint_(std::move(endpoint)), limits_(limits) {}
  void CheckLine(const LineFile::Line& line);
  void AddError(openai::BatchLineError error, std::optional<int64_t> line);

  const std::string endpoint_;
  const BatchLimits limits_;
  std::unique_ptr<LineFile> input_;
  std::unordered_set<std::string, KeyedHash> custom_ids_;
  int64_t line_number_ = 0;
  int64_t num_calls_ = 0;
  std::vector<openai::BatchError> errors_;
};

class BatchJob {
 public:
  struct Call {
    int64_t line = 0;
    std::string custom_id;
    std::string body;
    int num_throws = 0;  // since the job was opened
  };
  // Files of results.
  struct Paths {
    std::string output;  // calls that succeeded
    std::string errors;  // all others
  };

  // `store` outlives it, and counts the bytes of its results for `tenant`. The
  // job is used once it has recovered.
  BatchJob(openai::Batch batch, std::string tenant, const Paths& paths,
           const BatchLimits& limits, FileStore* store);
  ~BatchJob();
  BatchJob(const BatchJob&) = delete;
  BatchJob& operator=(const BatchJob&) = delete;

  // Reads the results that are there: true once it has all. Errors:
  // kUnavailable.
  absl::StatusOr<bool> Recover(SliceEnd end = kNoSliceEnd);

  // A call that is open. Nothing if there is none, at the end of the slice, and
  // at a line that is no call.
  // Errors: kUnavailable.
  absl::StatusOr<std::optional<Call>> Next(SliceEnd end = kNoSliceEnd);
  // Set once Next has met a line that is no call. The check passed it, so a
  // limit is lower now, or the file was damaged.
  const std::optional<openai::BatchError>& bad_line() const {
    return bad_line_;
  }
  // The input is read: Next returns only calls that were put back.
  bool is_at_end() const { return input_ != nullptr && input_->is_at_end(); }
  // The call is open again.
  void PutBack(Call call);
  // Errors: kUnavailable; then the job must be opened again.
  // kResourceExhausted if there is no room.
  absl::Status Add(const Call& call, const openai::BatchOutcome& outcome);
  // Errors: kUnavailable.
  absl::Status Sync();

  int64_t num_completed() const { return output_.num_results; }
  int64_t num_failed() const { return errors_.num_results; }

 private:
  // A file of results.
  struct Results {
    std::string path;
    std::unique_ptr<LineFile> read;  // until it is recovered
    int64_t num_bytes = 0;           // whole results
    AppendedFile file;               // then, after the last whole one
    int64_t num_results = 0;
    bool is_recovered = false;
  };

  absl::StatusOr<bool> Recover(SliceEnd end, Results* results);
  // False if the line is no whole result.
  bool AddRecovered(const LineFile::Line& line, Results* results);

  const openai::Batch batch_;
  const std::string tenant_;
  const BatchLimits limits_;
  FileStore* const store_;
  std::unique_ptr<LineFile> input_;  // from the first Next on
  std::optional<openai::BatchError> bad_line_;
  int64_t next_line_ = 0;
  std::vector<bool> is_done_;  // [lines so far]
  std::deque<Call> put_back_;
  Results output_;  // calls that succeeded
  Results errors_;
  int64_t num_reserved_ = 0;  // bytes, of the store
};

}  // namespace espalier::jobs
