#include "jobs/batch_job.h"

#include <filesystem>
#include <limits>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier::jobs {
namespace {

constexpr size_t kMaxErrors = 20;

// A line that is too long counts as not blank: its end is not kept.
bool IsBlank(const LineFile::Line& line) {
  return !line.is_too_long &&
         line.text.find_first_not_of(" \t") == line.text.npos;
}

// Nothing and `*error` if the line is no call.
std::optional<openai::BatchCall> ReadCall(const LineFile::Line& line,
                                          std::string_view endpoint,
                                          const BatchLimits& limits,
                                          openai::BatchLineError* error) {
  if (!line.is_too_long) {
    return openai::ReadBatchCall(line.text, endpoint, error);
  }
  *error = {"line_too_long",
            Concat("a line must have at most ", limits.max_line_bytes,
                   " bytes (--max-body-bytes), got more")};
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchInputCheck>> BatchInputCheck::Open(
    const std::string& path, const std::string& endpoint,
    const BatchLimits& limits) {
  std::unique_ptr<BatchInputCheck> check(new BatchInputCheck(endpoint, limits));
  ASSIGN_OR_RETURN(check->input_, LineFile::Open(path, limits.max_line_bytes));
  return check;
}

absl::StatusOr<bool> BatchInputCheck::Continue(SliceEnd end) {
  while (errors_.size() < kMaxErrors && num_calls_ <= limits_.max_lines) {
    ASSIGN_OR_RETURN(const std::optional<LineFile::Line> line,
                     input_->Next(end));
    if (!line && !input_->is_at_end()) return false;
    if (!line) break;
    ++line_number_;
    if (!IsBlank(*line)) CheckLine(*line);
    if (IsOver(end)) return false;
  }
  if (num_calls_ == 0 && errors_.empty()) {
    AddError({"empty_file", "the input has no line"}, {});
  }
  return true;
}

void BatchInputCheck::CheckLine(const LineFile::Line& line) {
  if (++num_calls_ > limits_.max_lines) {
    return AddError({"too_many_requests",
                     Concat("a batch must have at most ", limits_.max_lines,
                            " lines (--max-batch-lines)")},
                    line_number_);
  }
  openai::BatchLineError error;
  const auto call = ReadCall(line, endpoint_, limits_, &error);
  if (!call) {
    AddError(std::move(error), line_number_);
  } else if (!custom_ids_.insert(call->custom_id).second) {
    AddError({"duplicate_custom_id",
              Concat("custom_id ", ShownInQuotes(call->custom_id),
                     " is that of an earlier line, too"),
              "custom_id"},
             line_number_);
  }
}

void BatchInputCheck::AddError(openai::BatchLineError error,
                               std::optional<int64_t> line) {
  errors_.push_back({std::move(error.code), std::move(error.message), line,
                     std::move(error.param)});
}

BatchJob::BatchJob(openai::Batch batch, std::string tenant, const Paths& paths,
                   const BatchLimits& limits, FileStore* store)
    : batch_(std::move(batch)),
      tenant_(std::move(tenant)),
      limits_(limits),
      store_(store) {
  output_.path = paths.output;
  errors_.path = paths.errors;
}

BatchJob::~BatchJob() { store_->GiveBack(tenant_, num_reserved_); }

absl::StatusOr<bool> BatchJob::Recover(SliceEnd end) {
  for (Results* const results : {&output_, &errors_}) {
    if (results->is_recovered) continue;
    ASSIGN_OR_RETURN(results->is_recovered, Recover(end, results));
    if (!results->is_recovered) return false;
  }
  return true;
}

absl::StatusOr<bool> BatchJob::Recover(SliceEnd end, Results* results) {
  if (results->read == nullptr && std::filesystem::exists(results->path)) {
    ASSIGN_OR_RETURN(
        results->read,
        LineFile::Open(results->path, std::numeric_limits<int64_t>::max()));
  }
  while (results->read != nullptr) {
    ASSIGN_OR_RETURN(const std::optional<LineFile::Line> line,
                     results->read->Next(end));
    if (!line && !results->read->is_at_end()) return false;
    if (!line || !AddRecovered(*line, results)) break;
    if (IsOver(end)) return false;
  }
  results->read.reset();
  // Results on the disk are kept even if there is no room for them.
  if (store_->Reserve(tenant_, results->num_bytes))
    num_reserved_ += results->num_bytes;
  ASSIGN_OR_RETURN(results->file,
                   AppendedFile::Open(results->path, results->num_bytes));
  return true;
}

bool BatchJob::AddRecovered(const LineFile::Line& line, Results* results) {
  if (!line.has_end) return false;
  const auto number = openai::LineOfBatchResult(batch_.id, line.text);
  if (!number || *number >= std::numeric_limits<int32_t>::max()) return false;
  const size_t place = static_cast<size_t>(*number);
  if (place >= is_done_.size()) is_done_.resize(place + 1);
  is_done_[place] = true;
  results->num_bytes += line.num_bytes;
  ++results->num_results;
  return true;
}

absl::StatusOr<std::optional<BatchJob::Call>> BatchJob::Next(SliceEnd end) {
  if (!put_back_.empty()) {
    Call call = std::move(put_back_.front());
    put_back_.pop_front();
    return call;
  }
  if (input_ == nullptr) {
    ASSIGN_OR_RETURN(input_,
                     LineFile::Open(store_->PathOf(batch_.input_file_id),
                                    limits_.max_line_bytes));
  }
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<LineFile::Line> line,
                     input_->Next(end));
    if (!line) return std::nullopt;
    const int64_t number = next_line_++;
    const bool is_done =
        number < std::ssize(is_done_) && is_done_[static_cast<size_t>(number)];
    if (is_done || IsBlank(*line)) {
      if (IsOver(end)) return std::nullopt;
      continue;
    }
    openai::BatchLineError error;
    auto call = ReadCall(*line, batch_.endpoint, limits_, &error);
    if (!call) {
      bad_line_ = {std::move(error.code), std::move(error.message), number + 1,
                   std::move(error.param)};
      return std::nullopt;
    }
    return Call{number, std::move(call->custom_id), std::string(call->body)};
  }
}

void BatchJob::PutBack(Call call) { put_back_.push_back(std::move(call)); }

absl::Status BatchJob::Add(const Call& call,
                           const openai::BatchOutcome& outcome) {
  const std::string line =
      openai::WriteBatchResult(batch_.id, call.line, call.custom_id, outcome);
  if (!store_->Reserve(tenant_, std::ssize(line))) {
    return ResourceExhausted("there is no room for its results");
  }
  num_reserved_ += std::ssize(line);
  Results& results = outcome.is_success() ? output_ : errors_;
  RETURN_IF_ERROR(results.file.Append(line));
  ++results.num_results;
  return absl::OkStatus();
}

absl::Status BatchJob::Sync() {
  RETURN_IF_ERROR(output_.file.Sync());
  return errors_.file.Sync();
}

}  // namespace espalier::jobs
