#include "speech/speech_listener.h"

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace espalier {

std::shared_ptr<ThreadPool> MakeListeningPool() {
  // More would wait for the LSTM, which takes a quarter of the time of one.
  constexpr unsigned kMaxThreads = 4;
  const unsigned num_threads =
      std::clamp(std::thread::hardware_concurrency() / 2, 1u, kMaxThreads);
  auto pool = ThreadPool::Create(static_cast<int>(num_threads));
  return pool.ok() ? *std::move(pool) : std::make_shared<ThreadPool>();
}

SpeechListener::SpeechListener(std::unique_ptr<AudioReader> audio,
                               const VoiceActivity& network,
                               const ListenOptions& options)
    : audio_(std::move(audio)),
      pool_(MakeListeningPool()),
      chunker_(network, options.vad, options.max_samples, audio_->name(),
               pool_.get()),
      num_ahead_(std::max<size_t>(options.num_ahead, 1)) {}

absl::StatusOr<std::unique_ptr<SpeechListener>> SpeechListener::Start(
    std::unique_ptr<AudioReader> audio, const VoiceActivity& network,
    const ListenOptions& options) {
  std::unique_ptr<SpeechListener> listener(
      new SpeechListener(std::move(audio), network, options));
  try {
    SpeechListener* const self = listener.get();
    listener->thread_ =
        std::jthread([self](const std::stop_token& stop) { self->Run(stop); });
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start a thread: ", error.what());
  }
  return listener;
}

void SpeechListener::Run(const std::stop_token& stop) {
  try {
    End(Listen(stop), nullptr);
  } catch (...) {
    End(absl::OkStatus(), std::current_exception());
  }
}

absl::Status SpeechListener::Listen(const std::stop_token& stop) {
  std::vector<float> block(size_t(pool_->num_threads()) *
                           VoiceActivityStream::kSamplesOfThread);
  for (size_t size = block.size(); size == block.size();) {
    ASSIGN_OR_RETURN(size, audio_->Read(block));
    std::vector<SpeechChunk> chunks;
    chunker_.Push(std::span(block).first(size), &chunks);
    if (size < block.size()) chunker_.Finish(&chunks);
    if (!Queue(std::move(chunks), chunker_.num_samples(), stop)) {
      return absl::CancelledError("listening was cancelled");
    }
  }
  return absl::OkStatus();
}

bool SpeechListener::Queue(std::vector<SpeechChunk> chunks, int64_t num_samples,
                           const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  num_samples_ = num_samples;
  for (SpeechChunk& chunk : chunks) {
    const bool has_room =
        changed_.wait(lock, stop, [&] { return chunks_.size() < num_ahead_; });
    if (!has_room) return false;
    chunks_.push_back(std::move(chunk));
    changed_.notify_all();
  }
  return !stop.stop_requested();
}

void SpeechListener::End(const absl::Status& error, std::exception_ptr thrown) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) return;
  has_ended_ = true;
  error_ = error;
  thrown_ = std::move(thrown);
  changed_.notify_all();
}

absl::StatusOr<std::optional<SpeechChunk>> SpeechListener::Next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended_ || !chunks_.empty(); });
  if (!chunks_.empty()) {
    SpeechChunk chunk = std::move(chunks_.front());
    chunks_.pop_front();
    changed_.notify_all();
    return chunk;
  }
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  RETURN_IF_ERROR(error_);
  return std::nullopt;
}

absl::StatusOr<std::vector<SpeechSpan>> SpeechListener::SpansOfFirst(
    size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended_ || chunks_.size() >= count; });
  if (chunks_.size() < count) {
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
    RETURN_IF_ERROR(error_);
  }
  std::vector<SpeechSpan> spans;
  for (size_t i = 0; i < std::min(count, chunks_.size()); ++i) {
    spans.insert(spans.end(), chunks_[i].spans.begin(), chunks_[i].spans.end());
  }
  return spans;
}

void SpeechListener::Cancel() {
  End(absl::CancelledError("listening was cancelled"), nullptr);
  thread_.request_stop();
}

int64_t SpeechListener::num_samples() const {
  const std::lock_guard lock(mutex_);
  return num_samples_;
}

}  // namespace espalier
