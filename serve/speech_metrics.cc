#include "serve/speech_metrics.h"

#include <algorithm>
#include <iterator>

#include "absl/time/clock.h"

namespace espalier::serve {

SpeechMetrics::Entry::Entry(SpeechMetrics* metrics) : metrics_(metrics) {
  const std::lock_guard<std::mutex> lock(metrics_->mutex_);
  ++metrics_->stats_.num_waiting;
}

SpeechMetrics::Entry::~Entry() {
  const std::lock_guard<std::mutex> lock(metrics_->mutex_);
  if (began_ == absl::InfiniteFuture()) {
    --metrics_->stats_.num_waiting;
  } else {
    --metrics_->stats_.num_running;
    ++metrics_->stats_.num_ended;
  }
}

void SpeechMetrics::Entry::Begin() {
  began_ = absl::Now();
  const std::lock_guard<std::mutex> lock(metrics_->mutex_);
  --metrics_->stats_.num_waiting;
  ++metrics_->stats_.num_running;
}

void SpeechMetrics::Entry::Add(const Transcript& transcript,
                               double first_temperature) {
  const absl::Duration time = absl::Now() - began_;
  const std::lock_guard<std::mutex> lock(metrics_->mutex_);
  metrics_->stats_.audio_seconds += transcript.duration;
  metrics_->stats_.time_running += time;
  metrics_->stats_.num_windows += std::ssize(transcript.windows);
  metrics_->stats_.num_fallbacks += NumFallbacks(transcript, first_temperature);
}

SpeechMetrics::Stats SpeechMetrics::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

int64_t NumFallbacks(const Transcript& transcript, double first_temperature) {
  return std::ranges::count_if(transcript.windows,
                               [&](const TranscriptWindow& window) {
                                 return window.temperature != first_temperature;
                               });
}

}  // namespace espalier::serve
