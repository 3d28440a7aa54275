#include "jobs/batches.h"

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "jobs/record.h"
#include "openai/error.h"

namespace espalier::jobs {

namespace asio = boost::asio;
using openai::BatchStatus;

namespace {

constexpr std::string_view kBatchPrefix = "batch_";
// Period of Pump while batches wait.
constexpr absl::Duration kPeriod = absl::Seconds(1);
// Batches that run at a time: each has files open.
constexpr size_t kMaxOpenJobs = 16;

std::chrono::steady_clock::duration ToChrono(absl::Duration duration) {
  return absl::ToChronoNanoseconds(duration);
}

absl::Status NoBatch(std::string_view id) {
  return NotFound("there is no batch ", BytesInQuotes(id));
}

// A call whose handler throws so often has an error as its result.
constexpr int kMaxThrows = 3;

bool IsTransient(const openai::BatchOutcome& outcome) {
  return outcome.http_status == 429 || outcome.http_status == 503;
}

std::optional<BatchStatus> StatusNamed(std::string_view name) {
  for (size_t i = 0; i < openai::kNumBatchStatuses; ++i) {
    const auto status = static_cast<BatchStatus>(i);
    if (openai::NameOf(status) == name) return status;
  }
  return std::nullopt;
}

}  // namespace

struct Batches::Entry {
  std::string owner;
  std::string tenant;
  // Written on the thread of the batches, or by Cancel; under mutex_.
  openai::Batch batch;
  // Set once its results are those that it has; it is to end so.
  std::optional<BatchStatus> ends_as;

  // Used on the thread of the batches alone.
  std::unique_ptr<BatchInputCheck> check;  // while its input is checked
  std::unique_ptr<BatchJob> job;
  bool is_recovered = false;  // the job, which then makes calls
  int num_running = 0;
  bool fails = false;       // as its errors say, once its calls have ended
  bool has_warned = false;  // that its disk fails
  Time resume_at = {};
};

struct Batches::Running {
  std::shared_ptr<Entry> entry;
  BatchJob::Call call;
  asio::cancellation_signal cancel;
  openai::BatchOutcome outcome = {};
  bool has_outcome = false;
  bool is_cancelled = false;
  bool has_thrown = false;  // its handler, though it was not cancelled
};

// Called at the end of a call, or destroyed without a call: asio destroys a
// coroutine that lacks the memory to begin or wait.
class Batches::CallEnd {
 public:
  // REQUIRES: the call is among those that run.
  CallEnd(Batches* batches, std::list<Running>::iterator running)
      : batches_(batches), running_(running) {}
  CallEnd(CallEnd&& other) noexcept
      : batches_(std::exchange(other.batches_, nullptr)),
        running_(other.running_) {}
  CallEnd& operator=(CallEnd&&) = delete;
  ~CallEnd() {
    if (batches_ != nullptr) End();
  }

  void operator()(const std::exception_ptr&) { End(); }

 private:
  // Later, as it may end at once.
  void End() {
    Batches* const batches = std::exchange(batches_, nullptr);
    batches->Post([batches, running = running_] { batches->EndCall(running); });
  }

  Batches* batches_;  // null once it has ended
  const std::list<Running>::iterator running_;
};

absl::StatusOr<std::unique_ptr<Batches>> Batches::Open(
    const std::string& folder, const BatchOptions& options, FileStore* files,
    const WarnOfRecord& warn) {
  auto batches =
      std::make_unique<Batches>(folder + "/batches/", options, files, warn);
  RETURN_IF_ERROR(MakeFolder(batches->folder_));
  RETURN_IF_ERROR(batches->Load());
  return batches;
}

Batches::Batches(std::string folder, const BatchOptions& options,
                 FileStore* files, WarnOfRecord warn)
    : folder_(std::move(folder)),
      options_(options),
      files_(files),
      warn_(std::move(warn)),
      num_batches_("batches", "--max-batches", options.max_batches) {}

Batches::~Batches() { Stop(); }

absl::Status Batches::Load() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder_));
  for (const std::string& name : names) {
    if (name.ends_with(kNextEnd)) {
      RETURN_IF_ERROR(RemoveFile(folder_ + name));
      continue;
    }
    const std::string id = IdOfRecord(kBatchPrefix, name);
    if (id.empty()) continue;
    absl::StatusOr<std::shared_ptr<Entry>> read = ReadEntry(id);
    if (!read.ok()) {
      SetAside(read.status(), warn_);
      continue;
    }
    const std::shared_ptr<Entry> entry = *std::move(read);
    openai::Batch& batch = entry->batch;
    // A batch that is cancelled needs no input to end.
    if (!openai::IsFinal(batch.status) &&
        !files_->Hold(entry->owner, batch.input_file_id).ok() &&
        !entry->ends_as && batch.status != BatchStatus::kCancelling) {
      batch.errors.push_back(
          {"input_gone", Concat("the input is gone: there is no file ",
                                BytesInQuotes(batch.input_file_id))});
      entry->fails = true;
    }
    num_batches_.Take(entry->tenant, 1);
    entries_[id] = entry;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Batches::Entry>> Batches::ReadEntry(
    const std::string& id) const {
  const std::string path = PathOf(id, kRecordEnd);
  ASSIGN_OR_RETURN(const json::object record,
                   ReadRecord(path, {"batch", "ends_as"}));
  absl::StatusOr<openai::Batch> batch =
      openai::ReadStoredBatch(record.at("batch"));
  if (!batch.ok()) return Annotate(batch.status(), path);
  auto entry = std::make_shared<Entry>();
  entry->owner = record.at("owner").as_string();
  entry->tenant = TenantOf(record);
  entry->batch = *std::move(batch);
  const json::value& ends_as = record.at("ends_as");
  if (ends_as.is_string()) entry->ends_as = StatusNamed(ends_as.as_string());
  // Files are found by these ids, and an API by the endpoint.
  const auto is_file = [](const std::string& file_id) {
    return file_id.empty() || IsId(kFilePrefix, file_id);
  };
  const openai::Batch& stored = entry->batch;
  const bool is_good =
      stored.id == id && IsId(kFilePrefix, stored.input_file_id) &&
      is_file(stored.output_file_id) && is_file(stored.error_file_id) &&
      openai::FindBatchApi(stored.endpoint).has_value() &&
      entry->ends_as.has_value() == !ends_as.is_null();
  if (!is_good) return InvalidArgument(path, " is no record of ", id);
  return entry;
}

std::string Batches::PathOf(std::string_view id, std::string_view end) const {
  return Concat(folder_, id, end);
}

BatchJob::Paths Batches::PathsOf(const openai::Batch& batch) const {
  return {.output = PathOf(batch.id, ".output"),
          .errors = PathOf(batch.id, ".errors")};
}

absl::Status Batches::Save(const Entry& entry) {
  return ReplaceFile(
      PathOf(entry.batch.id, kRecordEnd),
      WriteJson({{"owner", entry.owner},
                 {"tenant", entry.tenant},
                 {"batch", openai::ToJson(entry.batch)},
                 {"ends_as", entry.ends_as
                                 ? json::value(openai::NameOf(*entry.ends_as))
                                 : json::value(nullptr)}}));
}

absl::Status Batches::SetStatus(BatchStatus status, Entry* entry) {
  openai::Batch& batch = entry->batch;
  const BatchStatus before = batch.status;
  int64_t& reached_at = batch.reached_at[static_cast<size_t>(status)];
  const int64_t reached_before = reached_at;
  batch.status = status;
  reached_at = UnixNow();
  const absl::Status saved = Save(*entry);
  if (saved.ok()) return saved;
  batch.status = before;
  reached_at = reached_before;
  return saved;
}

absl::Status Batches::MakeRoom(std::string_view tenant) {
  while (true) {
    const absl::Status room = num_batches_.Check(tenant, 1);
    if (room.ok()) return room;
    const bool takes_others = num_batches_.IsInShareOnceFree(tenant, 1);
    int64_t most = -1;
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!openai::IsFinal(entry->second->batch.status)) continue;
      const std::string& holder = entry->second->tenant;
      if (holder == tenant) {
        oldest = entry;
        break;
      }
      const int64_t held = num_batches_.HeldBy(holder);
      if (!takes_others || held <= most) continue;
      oldest = entry;
      most = held;
    }
    if (oldest == entries_.end()) {
      return ResourceExhausted(Message(room), "; none",
                               takes_others ? "" : " of this caller's",
                               " has ended");
    }
    RETURN_IF_ERROR(RemoveFile(PathOf(oldest->first, kRecordEnd)));
    num_batches_.GiveBack(oldest->second->tenant, 1);
    entries_.erase(oldest);
  }
}

std::shared_ptr<Batches::Entry> Batches::FindEntry(std::string_view owner,
                                                   std::string_view id) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second->owner != owner) return nullptr;
  return found->second;
}

absl::StatusOr<openai::Batch> Batches::Create(std::string_view owner,
                                              const openai::BatchOrder& order,
                                              std::string_view tenant) {
  constexpr std::string_view kInput = "input_file_id";
  const absl::StatusOr<openai::StoredFile> input =
      files_->Find(owner, order.input_file_id);
  if (!input.ok()) return openai::WithParam(input.status(), kInput);
  if (input->purpose != "batch") {
    return openai::RefuseField(
        kInput,
        Concat("input_file_id must be of a file of purpose \"batch\", got ",
               ShownInQuotes(input->purpose)));
  }
  auto entry = std::make_shared<Entry>();
  entry->owner = owner;
  entry->tenant = tenant;
  openai::Batch& batch = entry->batch;
  batch.id = NewId(kBatchPrefix);
  batch.endpoint = order.endpoint;
  batch.input_file_id = order.input_file_id;
  batch.completion_window = order.completion_window;
  batch.metadata = order.metadata;
  batch.created_at = UnixNow();
  batch.expires_at = batch.created_at + order.window_seconds;
  const absl::Status held = files_->Hold(owner, batch.input_file_id);
  if (!held.ok()) return openai::WithParam(held, kInput);
  openai::Batch created = batch;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    absl::Status status = MakeRoom(tenant);
    if (status.ok()) status = Save(*entry);
    if (!status.ok()) {
      files_->Release(batch.input_file_id);
      return status;
    }
    entries_[batch.id] = std::move(entry);
    num_batches_.Take(tenant, 1);
  }
  Post([this] { Pump(); });
  return created;
}

absl::StatusOr<openai::Batch> Batches::Find(std::string_view owner,
                                            std::string_view id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::shared_ptr<Entry> entry = FindEntry(owner, id);
  if (entry == nullptr) return NoBatch(id);
  return entry->batch;
}

std::vector<openai::Batch> Batches::List(std::string_view owner) const {
  std::vector<openai::Batch> batches;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (entry->owner == owner) batches.push_back(entry->batch);
  }
  return batches;
}

absl::StatusOr<openai::Batch> Batches::Cancel(std::string_view owner,
                                              std::string_view id) {
  openai::Batch batch;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<Entry> entry = FindEntry(owner, id);
    if (entry == nullptr) return NoBatch(id);
    const BatchStatus status = entry->batch.status;
    if (openai::IsFinal(status)) {
      return FailedPrecondition("the batch ", BytesInQuotes(id), " is ",
                                openai::NameOf(status), " already");
    }
    if (status == BatchStatus::kValidating ||
        status == BatchStatus::kInProgress) {
      RETURN_IF_ERROR(SetStatus(BatchStatus::kCancelling, entry.get()));
    }
    batch = entry->batch;
  }
  Post([this] { Pump(); });
  return batch;
}

absl::Status Batches::Start(RunCall run) {
  const std::lock_guard<std::mutex> lock(thread_mutex_);
  run_ = std::move(run);
  asio::post(context_, [this] { Pump(); });
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return MakeError(absl::StatusCode::kUnavailable,
                     "cannot start a thread for batches: ", error.what());
  }
  return absl::OkStatus();
}

void Batches::Run() {
  while (true) {
    try {
      context_.run();
      return;
    } catch (const std::bad_alloc&) {
      // The handler is lost.
      UntilThereIsMemory([&] {
        Wake(std::min(kPeriod, options_.pause));
        return true;
      });
    }
  }
}

void Batches::Stop() {
  const std::lock_guard<std::mutex> lock(thread_mutex_);
  if (!thread_.joinable()) return;
  Post([this] {
    is_stopping_ = true;
    timer_.cancel();
    guard_.reset();
    CancelCalls(nullptr);
  });
  thread_.join();
}

template <typename Handler>
void Batches::Post(const Handler& handler) {
  UntilThereIsMemory([&] {
    asio::post(context_, handler);
    return true;
  });
}

void Batches::Wake(absl::Duration delay) {
  timer_.expires_after(ToChrono(delay));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Pump();
  });
}

std::vector<std::shared_ptr<Batches::Entry>> Batches::Unfinished() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Entry>> unfinished;
  for (const auto& [id, entry] : entries_) {
    if (!openai::IsFinal(entry->batch.status)) unfinished.push_back(entry);
  }
  // The oldest of each tenant, then the next of each: many batches of one hold
  // up none of another.
  std::map<std::string_view, int> num_before;
  std::map<const Entry*, int> ranks;
  for (const auto& entry : unfinished) {
    ranks[entry.get()] = num_before[entry->tenant]++;
  }
  std::ranges::stable_sort(
      unfinished, {}, [&](const auto& entry) { return ranks.at(entry.get()); });
  return unfinished;
}

template <typename Work>
auto Batches::OrSuspend(Entry* entry, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    // A line may have been read and lost.
    Suspend(entry);
    throw;
  }
}

void Batches::Pump() {
  if (is_stopping_) return;
  const std::vector<std::shared_ptr<Entry>> unfinished = Unfinished();
  const Time now = std::chrono::steady_clock::now();
  const SliceEnd end = now + ToChrono(options_.slice);
  bool has_more = busy_ != nullptr;
  for (size_t i = 0; i < unfinished.size(); ++i) {
    Entry* const entry = unfinished[i].get();
    if (now < entry->resume_at || (busy_ != nullptr && busy_ != entry)) {
      continue;
    }
    is_busy_ = false;
    const absl::Status status =
        OrSuspend(entry, [&] { return Advance(i < kMaxOpenJobs, end, entry); });
    if (!status.ok()) SuspendFor(status, entry);
    busy_ = status.ok() && is_busy_ ? entry : nullptr;
  }
  has_more = has_more || busy_ != nullptr;
  // By turns, as long as one of them has a call.
  is_busy_ = false;
  const size_t num_open = std::min(unfinished.size(), kMaxOpenJobs);
  size_t num_idle = 0;
  while (now >= resume_at_ && num_idle < num_open &&
         std::ssize(running_) < options_.max_running_calls) {
    const auto& entry = unfinished[next_++ % num_open];
    const bool is_started =
        OrSuspend(entry.get(), [&] { return StartCall(end, entry); });
    num_idle = is_started ? 0 : num_idle + 1;
  }
  if (has_more || is_busy_) {
    PostPump();
  } else if (!unfinished.empty()) {
    Wake(std::min(kPeriod, options_.pause));
  }
}

void Batches::PostPump() {
  if (is_pump_posted_) return;
  asio::post(context_, [this] {
    is_pump_posted_ = false;
    Pump();
  });
  is_pump_posted_ = true;
  timer_.cancel();  // it would take a slice, too
}

BatchStatus Batches::StatusOf(const Entry& entry) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entry.batch.status;
}

openai::Batch Batches::CopyOf(const Entry& entry) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entry.batch;
}

bool Batches::IsLate(const Entry& entry) {
  return UnixNow() >= entry.batch.expires_at;
}

bool Batches::IsEnding(const Entry& entry) const {
  return IsLate(entry) || entry.fails ||
         StatusOf(entry) != BatchStatus::kInProgress;
}

absl::Status Batches::Advance(bool may_run, SliceEnd end, Entry* entry) {
  if (entry->ends_as) return AdoptResults(entry);
  if (StatusOf(*entry) == BatchStatus::kValidating && !entry->fails) {
    RETURN_IF_ERROR(Validate(end, entry));
    if (is_busy_) return absl::OkStatus();
  }
  entry->check.reset();
  if (StatusOf(*entry) == BatchStatus::kFailed) return absl::OkStatus();
  const bool is_late = IsLate(*entry);
  const bool is_cancelled = StatusOf(*entry) == BatchStatus::kCancelling;
  const bool ends = is_late || is_cancelled || entry->fails;
  if (ends) CancelCalls(entry);
  if (entry->num_running > 0) return absl::OkStatus();
  if (!ends && !may_run) {
    // Others may have come before it.
    CloseJob(entry);
    return absl::OkStatus();
  }
  if (!entry->is_recovered) RETURN_IF_ERROR(OpenJob(end, entry));
  if (is_busy_) return absl::OkStatus();
  if (is_cancelled) return Finalize(BatchStatus::kCancelled, entry);
  if (entry->fails) return Finalize(BatchStatus::kFailed, entry);
  if (is_late) {
    RETURN_IF_ERROR(AddExpired(end, entry));
    if (is_busy_) return absl::OkStatus();
    return Finalize(entry->fails ? BatchStatus::kFailed : BatchStatus::kExpired,
                    entry);
  }
  ASSIGN_OR_RETURN(std::optional<BatchJob::Call> call, NextCall(end, entry));
  if (call) {
    entry->job->PutBack(*std::move(call));
  } else if (entry->fails) {
    return Finalize(BatchStatus::kFailed, entry);
  } else if (entry->job->is_at_end()) {
    return Finalize(BatchStatus::kCompleted, entry);
  } else {
    is_busy_ = true;
  }
  return absl::OkStatus();
}

absl::Status Batches::Validate(SliceEnd end, Entry* entry) {
  if (entry->check == nullptr) {
    const openai::Batch batch = CopyOf(*entry);
    ASSIGN_OR_RETURN(entry->check,
                     BatchInputCheck::Open(files_->PathOf(batch.input_file_id),
                                           batch.endpoint, options_.limits));
  }
  ASSIGN_OR_RETURN(const bool is_checked, entry->check->Continue(end));
  is_busy_ = !is_checked;
  if (is_busy_) return absl::OkStatus();
  const std::unique_ptr<BatchInputCheck> check = std::move(entry->check);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entry->batch.status != BatchStatus::kValidating) return absl::OkStatus();
  entry->batch.num_calls = check->num_calls();
  entry->batch.errors = check->errors();
  const bool is_good = entry->batch.errors.empty();
  RETURN_IF_ERROR(SetStatus(
      is_good ? BatchStatus::kInProgress : BatchStatus::kFailed, entry));
  if (!is_good) files_->Release(entry->batch.input_file_id);
  return absl::OkStatus();
}

absl::Status Batches::OpenJob(SliceEnd end, Entry* entry) {
  if (entry->job == nullptr) {
    const openai::Batch batch = CopyOf(*entry);
    entry->job = std::make_unique<BatchJob>(
        batch, entry->tenant, PathsOf(batch), options_.limits, files_);
  }
  ASSIGN_OR_RETURN(entry->is_recovered, entry->job->Recover(end));
  is_busy_ = !entry->is_recovered;
  if (entry->is_recovered) UpdateCounts(entry);
  return absl::OkStatus();
}

void Batches::CloseJob(Entry* entry) {
  entry->check.reset();
  entry->job.reset();
  entry->is_recovered = false;
}

void Batches::UpdateCounts(Entry* entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entry->batch.num_completed = entry->job->num_completed();
  entry->batch.num_failed = entry->job->num_failed();
}

absl::Status Batches::AddExpired(SliceEnd end, Entry* entry) {
  while (!is_busy_) {
    ASSIGN_OR_RETURN(const std::optional<BatchJob::Call> call,
                     NextCall(end, entry));
    is_busy_ = call ? IsOver(end) : !entry->fails && !entry->job->is_at_end();
    if (!call) break;
    const absl::Status added = entry->job->Add(
        *call, {.error = {"batch_expired",
                          "This request could not be executed before the "
                          "completion window expired."}});
    if (absl::IsResourceExhausted(added)) {
      is_busy_ = false;
      break;
    }
    RETURN_IF_ERROR(added);
  }
  UpdateCounts(entry);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<BatchJob::Call>> Batches::NextCall(SliceEnd end,
                                                                Entry* entry) {
  ASSIGN_OR_RETURN(std::optional<BatchJob::Call> call, entry->job->Next(end));
  if (entry->job->bad_line()) Fail(*entry->job->bad_line(), entry);
  return call;
}

void Batches::Fail(openai::BatchError error, Entry* entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<openai::BatchError>& errors = entry->batch.errors;
  if (errors.empty()) errors.push_back(std::move(error));
  entry->fails = true;
}

absl::Status Batches::Finalize(BatchStatus ends_as, Entry* entry) {
  RETURN_IF_ERROR(entry->job->Sync());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    openai::Batch& batch = entry->batch;
    const openai::Batch before = batch;
    if (batch.num_completed > 0) batch.output_file_id = NewId(kFilePrefix);
    if (batch.num_failed > 0) batch.error_file_id = NewId(kFilePrefix);
    entry->ends_as = ends_as;
    const bool is_cancelled = batch.status == BatchStatus::kCancelling;
    const absl::Status saved = is_cancelled
                                   ? Save(*entry)
                                   : SetStatus(BatchStatus::kFinalizing, entry);
    if (!saved.ok()) {
      batch = before;
      entry->ends_as.reset();
      return saved;
    }
  }
  CloseJob(entry);
  return AdoptResults(entry);
}

absl::Status Batches::AdoptResults(Entry* entry) {
  const openai::Batch& batch = entry->batch;
  const BatchJob::Paths paths = PathsOf(batch);
  constexpr std::string_view kPurpose = "batch_output";
  if (!batch.output_file_id.empty()) {
    RETURN_IF_ERROR(
        files_->Adopt(entry->owner, entry->tenant, batch.output_file_id,
                      batch.id + "_output.jsonl", kPurpose, paths.output));
  }
  if (!batch.error_file_id.empty()) {
    RETURN_IF_ERROR(
        files_->Adopt(entry->owner, entry->tenant, batch.error_file_id,
                      batch.id + "_error.jsonl", kPurpose, paths.errors));
  }
  RETURN_IF_ERROR(RemoveFile(paths.output));
  RETURN_IF_ERROR(RemoveFile(paths.errors));
  const std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(SetStatus(*entry->ends_as, entry));
  files_->Release(batch.input_file_id);
  return absl::OkStatus();
}

void Batches::Suspend(Entry* entry) {
  CloseJob(entry);
  if (busy_ == entry) busy_ = nullptr;
  entry->resume_at =
      std::chrono::steady_clock::now() + ToChrono(options_.pause);
  CancelCalls(entry);
}

void Batches::SuspendFor(const absl::Status& error, Entry* entry) {
  Suspend(entry);
  if (warn_ == nullptr || std::exchange(entry->has_warned, true)) return;
  warn_(
      Concat(entry->batch.id, " waits, and is tried again: ", Message(error)));
}

bool Batches::StartCall(SliceEnd end, const std::shared_ptr<Entry>& entry) {
  if (!entry->is_recovered || entry.get() == busy_ || IsEnding(*entry)) {
    return false;
  }
  absl::StatusOr<std::optional<BatchJob::Call>> call =
      NextCall(end, entry.get());
  if (!call.ok()) {
    SuspendFor(call.status(), entry.get());
    return false;
  }
  if (!call->has_value()) {
    is_busy_ = is_busy_ || entry->fails || !entry->job->is_at_end();
    return false;
  }
  running_.emplace_front();
  ++entry->num_running;
  const auto running = running_.begin();
  running->entry = entry;
  running->call = **std::move(call);
  CallEnd call_end(this, running);
  asio::co_spawn(context_, MakeCall(&*running),
                 asio::bind_cancellation_slot(running->cancel.slot(),
                                              std::move(call_end)));
  return true;
}

asio::awaitable<void> Batches::MakeCall(Running* running) {
  RunningCall call = {*openai::FindBatchApi(running->entry->batch.endpoint),
                      running->entry->owner, running->entry->tenant,
                      running->call.body};
  try {
    running->outcome = co_await run_(std::move(call));
    running->has_outcome = true;
  } catch (const std::bad_alloc&) {
    throw;  // transient
  } catch (...) {
    running->has_thrown = !running->is_cancelled;
  }
}

void Batches::EndCall(std::list<Running>::iterator running) {
  std::list<Running> ended;
  ended.splice(ended.begin(), running_, running);
  Entry* const entry = running->entry.get();
  --entry->num_running;
  OrSuspend(entry, [&] { TakeOutcome(&*running); });
  Pump();
}

void Batches::TakeOutcome(Running* running) {
  Entry* const entry = running->entry.get();
  if (entry->job == nullptr) return;
  if (running->has_thrown && ++running->call.num_throws == kMaxThrows) {
    running->outcome = {
        .error = {"server_error", Concat("The request failed ", kMaxThrows,
                                         " times in the server.")}};
    running->has_outcome = true;
  }
  if (running->has_outcome && !IsTransient(running->outcome)) {
    const absl::Status added = AddResult(*running);
    if (!added.ok()) SuspendFor(added, entry);
    return;
  }
  entry->job->PutBack(std::move(running->call));
  // Else it was cancelled, and says nothing of the engine.
  if (!IsEnding(*entry)) {
    resume_at_ = std::chrono::steady_clock::now() + ToChrono(options_.pause);
  }
}

absl::Status Batches::AddResult(const Running& running) {
  Entry* const entry = running.entry.get();
  const absl::Status added = entry->job->Add(running.call, running.outcome);
  if (absl::IsResourceExhausted(added)) {
    Fail({"no_room", Message(added)}, entry);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(added);
  UpdateCounts(entry);
  return absl::OkStatus();
}

void Batches::CancelCalls(const Entry* entry) {
  for (Running& running : running_) {
    if (entry != nullptr && running.entry.get() != entry) continue;
    running.is_cancelled = true;
    running.cancel.emit(asio::cancellation_type::terminal);
  }
}

}  // namespace espalier::jobs
