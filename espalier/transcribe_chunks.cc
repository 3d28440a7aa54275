#include "espalier/transcribe_chunks.h"

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

  struct Done {
    Transcript transcript;
    int64_t next = 0;  // SpeechChunk::next
  };

  void Add(int64_t chunk, Done done) {
    {
      const std::lock_guard lock(mutex_);
      done_.emplace(chunk, std::move(done));
    }
    changed_.notify_all();
  }
  // There are no chunks from this one on.
  void End(int64_t num_chunks) {
    {
      const std::lock_guard lock(mutex_);
      num_chunks_ = num_chunks;
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

  // Waits for the transcript of `chunk`, or a failure; nullopt if there is no
  // such chunk. Throws what was thrown.
  absl::StatusOr<std::optional<Done>> Take(int64_t chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return has_failed_ || done_.contains(chunk) || num_chunks_ == chunk;
    });
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
    if (has_failed_) return error_;
    if (num_chunks_ == chunk) return std::nullopt;
    return std::move(done_.extract(chunk).mapped());
  }

 private:
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Done> done_;
  int64_t num_chunks_ = -1;  // -1: not known yet
  bool has_failed_ = false;
  absl::Status error_;
  std::exception_ptr thrown_;
};

}  // namespace

absl::StatusOr<const NaturalLanguage*> ChunkLanguages::Resolve(
    int64_t index, const NaturalLanguage* detected, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  if (detected == nullptr) {
    const bool is_resolved = changed_.wait(
        lock, std::move(stop), [&] { return resolved_.contains(index - 1); });
    if (!is_resolved) return absl::CancelledError("the transcription ended");
    detected = resolved_.at(index - 1);
  }
  resolved_.emplace(index, detected);
  changed_.notify_all();
  return detected;
}

absl::Status TranscribeChunks(
    const std::function<absl::StatusOr<std::optional<SpeechChunk>>()>& next,
    int64_t num_at_once, std::stop_source stop,
    const std::function<absl::StatusOr<Transcript>(const SpeechChunk&)>&
        transcribe,
    const std::function<absl::Status(Transcript, int64_t next)>& take) {
  ChunkResults results(stop);
  std::mutex next_mutex;
  int64_t num_chunks = 0;  // that `next` returned
  const auto take_next = [&]() -> absl::StatusOr<std::optional<SpeechChunk>> {
    const std::lock_guard lock(next_mutex);
    ASSIGN_OR_RETURN(std::optional<SpeechChunk> chunk, next());
    if (chunk) {
      ++num_chunks;
    } else {
      results.End(num_chunks);
    }
    return chunk;
  };
  // Returns false after the last chunk.
  const auto transcribe_next = [&]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const std::optional<SpeechChunk> chunk, take_next());
    if (!chunk) return false;
    ASSIGN_OR_RETURN(Transcript transcript, transcribe(*chunk));
    results.Add(chunk->index, {std::move(transcript), chunk->next});
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
  threads.reserve(static_cast<size_t>(num_at_once));
  try {
    while (std::ssize(threads) < num_at_once) threads.emplace_back(work);
  } catch (const std::system_error& error) {
    // Fewer at once, with the same results.
    if (threads.empty()) {
      return ResourceExhausted("cannot start a thread: ", error.what());
    }
  }
  for (int64_t chunk = 0;; ++chunk) {
    ASSIGN_OR_RETURN(auto done, results.Take(chunk));
    if (!done) break;
    RETURN_IF_ERROR(take(std::move(done->transcript), done->next));
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
