// Transcriptions of the package: a Transcriber, and calls of Python to it. Each
// runs on a thread of its own, which never takes the GIL, and hands over its
// segments through a descriptor.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/transcriber.h"
#include "python/src/engine.h"
#include "python/src/ready_queue.h"
#include "python/src/transcribe_options.h"

namespace espalier::python {

// The audio of a call, opened anew for each pass over it.
struct AudioSource {
  OpenAudio open;

  // A file at `path`, or the content of one.
  static AudioSource OfFile(const nanobind::bytes& path);
  static AudioSource OfContent(const nanobind::bytes& content);
  // An array [num_samples] f32 on the CPU, mono at 16 kHz, of any library with
  // DLPack or buffers; copied. What is beyond [-1, 1] is clipped, as of a file.
  // Raises InvalidArgument naming what is wrong with it.
  static AudioSource OfSamples(nanobind::handle array);
};

class SpeechEngine : public Engine {
 public:
  //   vad_model  the file of LoadVoiceActivity; empty: none
  SpeechEngine(const std::string& directory, const GeneratorOptions& options,
               int num_sequences, int num_windows,
               const std::string& vad_model);
  ~SpeechEngine();

  // As Engine's, and waits until all transcriptions have ended.
  void Close();

 private:
  friend class Transcription;
  SpeechEngine(std::shared_ptr<const VoiceActivity> voice_activity,
               std::shared_ptr<const Transcriber> transcriber);

  const std::shared_ptr<const VoiceActivity> voice_activity_;  // null: none
  // Alive as long as generator().
  const std::weak_ptr<const Transcriber> transcriber_;
  std::stop_source closing_;
  // Threads of transcriptions.
  const std::shared_ptr<std::atomic<int>> num_running_ =
      std::make_shared<std::atomic<int>>(0);
};

// A transcription that runs.
//
// Thread safety: as Requests.
class Transcription {
 public:
  // Checks the options and begins. Raises InvalidArgument naming what is wrong.
  Transcription(const SpeechEngine& engine, const AudioSource& audio,
                const nanobind::dict& options, double timeout);
  // Ends it.
  ~Transcription();
  Transcription(const Transcription&) = delete;
  Transcription& operator=(const Transcription&) = delete;

  // Readable where there is something to take.
  int fd() const { return shared_->queue->fd(); }
  bool Wait(double seconds) const;
  // The segments since the last call, each as JSON; and the transcript as JSON,
  // an exception, or None as long as it runs.
  nanobind::tuple Take();
  void Cancel();

 private:
  // Shared with the thread.
  struct Shared {
    std::shared_ptr<ReadyQueue> queue;
    std::stop_source stop;
    std::mutex mutex;
    std::vector<TranscriptSegment> segments;           // guarded by mutex
    std::optional<absl::StatusOr<Transcript>> answer;  // guarded by mutex
  };

  const int num_forks_;
  const GivenTranscribeOptions given_;
  std::shared_ptr<Shared> shared_;
};

void BindSpeech(nanobind::module_& module);

}  // namespace espalier::python
