// Batches: batches of calls that run below everything else, on a thread of
// their own, and outlive the server.
//
//   FOLDER/batches/
//     batch_63d0....json    {"owner", "tenant", "batch", "ends_as"}
//     batch_63d0....output  results so far, until they are a file
//     batch_63d0....errors
//
//   validating ─> in_progress ─> finalizing ─> completed, expired, failed
//       │              └──> cancelling ──────> cancelled
//       └──> failed
//
// A record is replaced at once, and before what it announces is done, so that a
// batch resumes where any end of the process left it: each of its calls
// has one result, unless the batch was cancelled or failed. A disk that fails
// pauses the batch, which is then read from the disk anew.
//
// Long files are read in slices, between which calls run; one batch at a time
// is in the midst of one.
//
// Thread safety: any thread calls anything.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "jobs/batch_job.h"
#include "jobs/batch_options.h"
#include "jobs/file_store.h"
#include "jobs/record.h"
#include "jobs/tenant_shares.h"
#include "openai/batch_lines.h"
#include "openai/stored_objects.h"

namespace espalier::jobs {

// A call of a batch on its way to the engine.
struct RunningCall {
  openai::Api api = openai::Api::kCompletions;
  std::string owner;
  std::string tenant;
  std::string body;
};
// Makes a call. After a status of 429 or 503 it is made again later.
// It runs on the thread of the batches, and is cancelled when it is not wanted.
using RunCall = std::function<boost::asio::awaitable<openai::BatchOutcome>(
    RunningCall call)>;

class Batches {
 public:
  // Reads what there is; nothing runs before Start. `files`, of the same
  // folder, outlives it.
  // Errors: kUnavailable with the system's reason.
  static absl::StatusOr<std::unique_ptr<Batches>> Open(
      const std::string& folder, const BatchOptions& options, FileStore* files,
      const WarnOfRecord& warn = nullptr);
  // Use Open.
  Batches(std::string folder, const BatchOptions& options, FileStore* files,
          WarnOfRecord warn);
  ~Batches();  // Stop()
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // Once.
  // Errors: kUnavailable if there is no thread to be had.
  absl::Status Start(RunCall run);
  // Cancels the calls that run, which are made again by the next server, and
  // waits for its thread.
  void Stop();

  // `tenant`: as of FileStore::BeginUpload.
  // Errors: kNotFound without the input; kInvalidArgument if that is no input;
  // kResourceExhausted if too many have not ended; kUnavailable.
  absl::StatusOr<openai::Batch> Create(std::string_view owner,
                                       const openai::BatchOrder& order,
                                       std::string_view tenant = "");
  // Errors: kNotFound unless the owner has it.
  absl::StatusOr<openai::Batch> Find(std::string_view owner,
                                     std::string_view id) const;
  // Oldest first.
  std::vector<openai::Batch> List(std::string_view owner) const;
  // A batch that is ending stays as it is.
  // Errors: as Find; kFailedPrecondition if it has ended; kUnavailable.
  absl::StatusOr<openai::Batch> Cancel(std::string_view owner,
                                       std::string_view id);

 private:
  struct Entry;
  struct Running;
  class CallEnd;
  using Time = std::chrono::steady_clock::time_point;

  absl::Status Load();
  absl::StatusOr<std::shared_ptr<Entry>> ReadEntry(const std::string& id) const;
  std::string PathOf(std::string_view id, std::string_view end) const;
  BatchJob::Paths PathsOf(const openai::Batch& batch) const;
  absl::Status Save(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetStatus(openai::BatchStatus status, Entry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes room for one more of a tenant, by forgetting batches that have ended:
  // its oldest, or if it has none and is within its share, the oldest of the
  // tenant that holds most. The others may never come back to make room.
  absl::Status MakeRoom(std::string_view tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Entry> FindEntry(std::string_view owner,
                                   std::string_view id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  openai::BatchStatus StatusOf(const Entry& entry) const;
  openai::Batch CopyOf(const Entry& entry) const;

  // Runs it on the thread of the batches, as soon as there is memory to say so.
  template <typename Handler>
  void Post(const Handler& handler);

  // The rest runs on the thread of the batches.
  void Run();
  void Pump();
  void PostPump();
  void Wake(absl::Duration delay);
  std::vector<std::shared_ptr<Entry>> Unfinished() const;
  // Takes a batch as far as it goes without making calls.
  // `may_run`: its calls may be made.
  absl::Status Advance(bool may_run, SliceEnd end, Entry* entry);
  static bool IsLate(const Entry& entry);
  // It makes no calls, and those that run are cancelled.
  bool IsEnding(const Entry& entry) const;
  // These set is_busy_ if there is more to do than the slice had time for.
  absl::Status Validate(SliceEnd end, Entry* entry);
  absl::Status OpenJob(SliceEnd end, Entry* entry);
  absl::Status AddExpired(SliceEnd end, Entry* entry);
  // As BatchJob::Next. A line that is no call fails the batch.
  absl::StatusOr<std::optional<BatchJob::Call>> NextCall(SliceEnd end,
                                                         Entry* entry);
  // Its calls are cancelled, and it ends with the results that it has.
  void Fail(openai::BatchError error, Entry* entry);
  void CloseJob(Entry* entry);
  // Begins to end it: its results are what there is.
  absl::Status Finalize(openai::BatchStatus ends_as, Entry* entry);
  absl::Status AdoptResults(Entry* entry);
  void UpdateCounts(Entry* entry);
  // Pauses a batch, to read it anew.
  void Suspend(Entry* entry);
  // Its disk failed. Warns of it once.
  void SuspendFor(const absl::Status& error, Entry* entry);
  // Does `work` on a batch, and suspends the batch if memory runs out.
  template <typename Work>
  auto OrSuspend(Entry* entry, Work work);
  // True if a call was begun.
  bool StartCall(SliceEnd end, const std::shared_ptr<Entry>& entry);
  boost::asio::awaitable<void> MakeCall(Running* running);
  void EndCall(std::list<Running>::iterator running);
  // The call has its result, or is open again.
  void TakeOutcome(Running* running);
  absl::Status AddResult(const Running& running);
  void CancelCalls(const Entry* entry);  // null: all

  const std::string folder_;  // with its slash
  const BatchOptions options_;
  FileStore* const files_;
  const WarnOfRecord warn_;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>, std::less<>> entries_
      ABSL_GUARDED_BY(mutex_);  // by id: oldest first
  TenantShares num_batches_ ABSL_GUARDED_BY(mutex_);

  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      guard_{context_.get_executor()};
  boost::asio::steady_timer timer_{context_};
  RunCall run_;
  std::list<Running> running_;
  size_t next_ = 0;      // batch of the next call
  Time resume_at_ = {};  // no call is begun before
  bool is_stopping_ = false;
  bool is_busy_ = false;  // the slice ended in the midst of a file
  // Batch of that file: it begins no calls, and no other batch advances.
  const Entry* busy_ = nullptr;
  bool is_pump_posted_ = false;
  std::mutex thread_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(thread_mutex_);
};

}  // namespace espalier::jobs
