#include "jobs/batch_job.h"

#include <filesystem>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier::jobs {
namespace {

constexpr size_t kMaxErrors = 20;

// Adds what is wrong with a line to `*batch`.
void AddError(std::string code, std::string message,
              std::optional<int64_t> line, openai::Batch* batch) {
  batch->errors.push_back({std::move(code), std::move(message), line});
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t") == text.npos;
}

}  // namespace

absl::Status CheckBatchInput(const std::string& path, const BatchLimits& limits,
                             openai::Batch* batch) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineFile> input,
                   LineFile::Open(path, limits.max_line_bytes));
  std::unordered_set<std::string, KeyedHash> custom_ids;
  batch->num_calls = 0;
  for (int64_t number = 1; batch->errors.size() < kMaxErrors; ++number) {
    ASSIGN_OR_RETURN(const std::optional<LineFile::Line> line, input->Next());
    if (!line) break;
    if (IsBlank(line->text)) continue;
    if (++batch->num_calls > limits.max_lines) {
      AddError("too_many_requests",
               Concat("a batch must have at most ", limits.max_lines,
                      " lines (--max-batch-lines)"),
               number, batch);
      break;
    }
    if (line->is_too_long) {
      AddError("line_too_long",
               Concat("a line must have at most ", limits.max_line_bytes,
                      " bytes (--max-body-bytes), got more"),
               number, batch);
      continue;
    }
    openai::BatchLineError error;
    const auto call =
        openai::ReadBatchCall(line->text, batch->endpoint, &error);
    if (!call) {
      AddError(error.code, error.message, number, batch);
    } else if (!custom_ids.insert(call->custom_id).second) {
      AddError("duplicate_custom_id",
               Concat("custom_id ", ShownInQuotes(call->custom_id),
                      " is that of an earlier line, too"),
               number, batch);
    }
  }
  if (batch->num_calls == 0 && batch->errors.empty()) {
    AddError("empty_file", "the input has no line", {}, batch);
  }
  return absl::OkStatus();
}

BatchJob::BatchJob(openai::Batch batch, FileStore* store)
    : batch_(std::move(batch)), store_(store) {}

BatchJob::~BatchJob() { store_->GiveBack(num_reserved_); }

absl::StatusOr<std::unique_ptr<BatchJob>> BatchJob::Open(
    const openai::Batch& batch, const Paths& paths, const BatchLimits& limits,
    FileStore* store) {
  std::unique_ptr<BatchJob> job(new BatchJob(batch, store));
  ASSIGN_OR_RETURN(job->input_,
                   LineFile::Open(store->PathOf(batch.input_file_id),
                                  limits.max_line_bytes));
  ASSIGN_OR_RETURN(job->output_,
                   job->Recover(paths.output, &job->num_completed_));
  ASSIGN_OR_RETURN(job->errors_, job->Recover(paths.errors, &job->num_failed_));
  return job;
}

absl::StatusOr<AppendedFile> BatchJob::Recover(const std::string& path,
                                               int64_t* num_results) {
  int64_t size = 0;
  if (std::filesystem::exists(path)) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LineFile> results,
                     LineFile::Open(path, std::numeric_limits<int64_t>::max()));
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<LineFile::Line> line,
                       results->Next());
      if (!line || !line->has_end) break;
      const auto number = openai::LineOfBatchResult(batch_.id, line->text);
      if (!number || *number >= std::numeric_limits<int32_t>::max()) break;
      const size_t place = static_cast<size_t>(*number);
      if (place >= is_done_.size()) is_done_.resize(place + 1);
      is_done_[place] = true;
      size += line->num_bytes;
      ++*num_results;
    }
  }
  // What is there already is kept, whether or not there is room.
  if (store_->Reserve(size)) num_reserved_ += size;
  return AppendedFile::Open(path, size);
}

absl::StatusOr<std::optional<BatchJob::Call>> BatchJob::Next() {
  if (!put_back_.empty()) {
    Call call = std::move(put_back_.front());
    put_back_.pop_front();
    return call;
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<LineFile::Line> line, input_->Next());
    if (!line) return std::nullopt;
    const int64_t number = next_line_++;
    const bool is_done =
        number < std::ssize(is_done_) && is_done_[static_cast<size_t>(number)];
    if (is_done || IsBlank(line->text)) continue;
    openai::BatchLineError error;
    auto call = openai::ReadBatchCall(line->text, batch_.endpoint, &error);
    if (!call) {
      return MakeError(absl::StatusCode::kUnavailable, "line ", number + 1,
                       " of ", batch_.input_file_id,
                       " is no call: ", error.message);
    }
    return Call{number, std::move(call->custom_id), std::string(call->body)};
  }
}

void BatchJob::PutBack(Call call) { put_back_.push_back(std::move(call)); }

absl::Status BatchJob::Add(const Call& call,
                           const openai::BatchOutcome& outcome) {
  const std::string line =
      openai::WriteBatchResult(batch_.id, call.line, call.custom_id, outcome);
  if (!store_->Reserve(std::ssize(line))) {
    return ResourceExhausted("there is no room for its results");
  }
  num_reserved_ += std::ssize(line);
  const bool is_success = outcome.is_success();
  RETURN_IF_ERROR((is_success ? output_ : errors_).Append(line));
  ++(is_success ? num_completed_ : num_failed_);
  return absl::OkStatus();
}

absl::Status BatchJob::Sync() {
  RETURN_IF_ERROR(output_.Sync());
  return errors_.Sync();
}

}  // namespace espalier::jobs
