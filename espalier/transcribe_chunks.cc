#include "espalier/transcribe_chunks.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace espalier {
namespace {

// Transcripts by their chunks, until they are taken in order.
class ChunkResults {
 public:
  explicit ChunkResults(std::stop_source stop) : stop_(std::move(stop)) {}

  void Add(int64_t chunk, absl::StatusOr<Transcript> transcript) {
    {
      const std::lock_guard lock(mutex_);
      if (transcript.ok()) {
        done_.emplace(chunk, *std::move(transcript));
      } else if (error_.ok()) {
        error_ = transcript.status();
      }
    }
    changed_.notify_all();
    if (!transcript.ok()) stop_.request_stop();
  }
  bool HasFailed() {
    const std::lock_guard lock(mutex_);
    return !error_.ok();
  }

  // Waits for the transcript of `chunk` or an error.
  absl::StatusOr<Transcript> Take(int64_t chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !error_.ok() || done_.contains(chunk); });
    RETURN_IF_ERROR(error_);
    return std::move(done_.extract(chunk).mapped());
  }

 private:
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Transcript> done_;
  absl::Status error_;  // the first
};

}  // namespace

absl::Status TranscribeChunks(
    SpeechChunks& chunks, int64_t num_at_once, std::stop_source stop,
    const std::function<absl::StatusOr<Transcript>(const SpeechChunk&)>&
        transcribe,
    const std::function<absl::Status(Transcript)>& take) {
  ChunkResults results(stop);
  const auto work = [&] {
    while (!results.HasFailed()) {
      absl::StatusOr<std::optional<SpeechChunk>> chunk = chunks.Next();
      if (!chunk.ok()) {
        results.Add(0, chunk.status());
      } else if (!*chunk) {
        return;
      } else {
        results.Add((*chunk)->index, transcribe(**chunk));
      }
    }
  };
  std::vector<std::jthread> threads;
  const int64_t num_threads = std::min(num_at_once, chunks.size());
  try {
    while (std::ssize(threads) < num_threads) threads.emplace_back(work);
  } catch (const std::system_error& error) {
    // Fewer at once, with the same results.
    if (threads.empty()) {
      return ResourceExhausted("cannot start a thread: ", error.what());
    }
  }
  for (int64_t chunk = 0; chunk < chunks.size(); ++chunk) {
    absl::StatusOr<Transcript> transcript = results.Take(chunk);
    absl::Status status = transcript.status();
    if (status.ok()) status = take(*std::move(transcript));
    if (status.ok()) continue;
    results.Add(chunk, status);  // so that the others end
    return status;
  }
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
