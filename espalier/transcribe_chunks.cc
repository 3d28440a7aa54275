#include "espalier/transcribe_chunks.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/status.h"

namespace espalier {
namespace {

// Transcripts by their chunks, until they are taken in order.
class ChunkResults {
 public:
  explicit ChunkResults(std::stop_source stop) : stop_(std::move(stop)) {}

  void Add(int64_t chunk, Transcript transcript) {
    {
      const std::lock_guard lock(mutex_);
      done_.emplace(chunk, std::move(transcript));
    }
    changed_.notify_all();
  }
  // Ends all, for the first of these reasons: an error, or what was thrown.
  void Fail(const absl::Status& error, std::exception_ptr thrown = nullptr) {
    {
      const std::lock_guard lock(mutex_);
      if (!has_failed_) {
        error_ = error;
        thrown_ = std::move(thrown);
      }
      has_failed_ = true;
    }
    changed_.notify_all();
    stop_.request_stop();
  }
  bool HasFailed() {
    const std::lock_guard lock(mutex_);
    return has_failed_;
  }

  // Waits for the transcript of `chunk`, or a failure. Throws what was thrown.
  absl::StatusOr<Transcript> Take(int64_t chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_failed_ || done_.contains(chunk); });
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
    if (has_failed_) return error_;
    return std::move(done_.extract(chunk).mapped());
  }

 private:
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Transcript> done_;
  bool has_failed_ = false;
  absl::Status error_;
  std::exception_ptr thrown_;
};

}  // namespace

absl::Status TranscribeChunks(
    SpeechChunks& chunks, int64_t num_at_once, std::stop_source stop,
    const std::function<absl::StatusOr<Transcript>(const SpeechChunk&)>&
        transcribe,
    const std::function<absl::Status(Transcript)>& take) {
  ChunkResults results(stop);
  // Returns false after the last chunk.
  const auto transcribe_next = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const std::optional<SpeechChunk> chunk, chunks.Next());
    if (!chunk) return false;
    ASSIGN_OR_RETURN(Transcript transcript, transcribe(*chunk));
    results.Add(chunk->index, std::move(transcript));
    return true;
  };
  const auto work = [&] {
    try {
      while (!results.HasFailed()) {
        const absl::StatusOr<bool> has_more = transcribe_next();
        if (!has_more.ok()) results.Fail(has_more.status());
        if (!has_more.ok() || !*has_more) return;
      }
    } catch (...) {
      results.Fail(absl::OkStatus(), std::current_exception());
    }
  };
  std::vector<std::jthread> threads;
  bool is_complete = false;
  // Before the threads are joined, which would go through all chunks first.
  const absl::Cleanup end = [&] {
    // Nothing is allocated: memory may be what is short.
    if (!is_complete) results.Fail({absl::StatusCode::kCancelled, ""});
  };
  const int64_t num_threads = std::min(num_at_once, chunks.size());
  threads.reserve(static_cast<size_t>(num_threads));
  try {
    while (std::ssize(threads) < num_threads) threads.emplace_back(work);
  } catch (const std::system_error& error) {
    // Fewer at once, with the same results.
    if (threads.empty()) {
      return ResourceExhausted("cannot start a thread: ", error.what());
    }
  }
  for (int64_t chunk = 0; chunk < chunks.size(); ++chunk) {
    ASSIGN_OR_RETURN(Transcript transcript, results.Take(chunk));
    RETURN_IF_ERROR(take(std::move(transcript)));
  }
  is_complete = true;
  return absl::OkStatus();
}

void AppendTranscript(Transcript next, Transcript* transcript) {
  for (TranscriptSegment& segment : next.segments) {
    segment.id = std::ssize(transcript->segments);
    transcript->segments.push_back(std::move(segment));
  }
  std::ranges::move(next.windows, std::back_inserter(transcript->windows));
  transcript->text += next.text;
}

}  // namespace espalier
