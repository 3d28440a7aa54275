// SpeechMetrics: counts of the transcriptions of a server.
//
// Thread safety: any thread calls anything.
#pragma once

#include <cstdint>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "speech/transcript.h"

namespace espalier::serve {

class SpeechMetrics {
 public:
  struct Stats {
    int64_t num_waiting = 0;
    int64_t num_running = 0;
    // Totals.
    int64_t num_ended = 0;  // that ran, errors included
    // Totals of transcriptions that came to their end.
    double audio_seconds = 0;
    absl::Duration time_running;
    int64_t num_windows = 0;
    int64_t num_fallbacks = 0;  // windows above their first temperature
  };

  // A transcription that waits, and runs from Begin on.
  class Entry {
   public:
    explicit Entry(SpeechMetrics* metrics);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    void Begin();
    void Add(const Transcript& transcript, double first_temperature);

   private:
    SpeechMetrics* const metrics_;
    absl::Time began_ = absl::InfiniteFuture();  // once it runs
  };

  Stats stats() const;

 private:
  mutable std::mutex mutex_;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

// Returns the windows that were decoded at another temperature than the first.
int64_t NumFallbacks(const Transcript& transcript, double first_temperature);

}  // namespace espalier::serve
