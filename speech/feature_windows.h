// FeatureWindows: the log-mel features of an audio of any length, window by
// window, in the memory of a few windows.
//
// Features depend on the loudest frame of the whole audio (log_mel.h), so the
// audio is read twice: once to find that, and once more as windows ask for it.
// Windows may overlap; frames are kept until they are forgotten.
//
// As openai's, the audio is followed by silence, not by its reflection, and a
// window that ends before its rows do is filled with 0.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/feature_matrix.h"
#include "speech/audio_reader.h"
#include "speech/log_mel.h"

namespace espalier {

class FeatureWindows {
 public:
  // Reads the whole audio once, and opens it again.
  //   block_size  samples that are read at a time
  // Errors: those of `open` and of AudioReader::Read; kInvalidArgument naming
  // the audio if it has no whole frame.
  static absl::StatusOr<FeatureWindows> Open(const OpenAudio& open,
                                             int num_bands,
                                             int block_size = 1 << 16);

  // Frames of 10 ms, at least one.
  int64_t num_frames() const { return num_frames_; }
  // Seconds.
  double duration() const {
    return static_cast<double>(num_samples_) / kSpeechRate;
  }

  // Returns `num_rows` rows: frames [first, first + size), and zeros.
  // REQUIRES: frame `first` is in the audio and not forgotten; 1 <= size <=
  // num_rows. Errors: those of AudioReader::Read; kInvalidArgument if the audio
  // has become shorter.
  absl::StatusOr<std::shared_ptr<const FeatureMatrix>> Window(int64_t first,
                                                              int64_t size,
                                                              int num_rows);

  // Forgets the frames before this one.
  void ForgetBefore(int64_t frame);

  // Brings the frames from this one on back. If they were forgotten, the audio
  // is opened and read from its beginning again. Errors: those of `open`.
  absl::Status RewindTo(int64_t frame, const OpenAudio& open);

 private:
  FeatureWindows(std::unique_ptr<AudioReader> reader, int num_bands,
                 int block_size);

  // Reads a block into rows_.
  absl::Status ReadBlock();
  void DropForgotten();
  int64_t end_row() const {
    return first_row_ +
           static_cast<int64_t>(rows_.size()) / log_mel_->num_bands();
  }

  std::unique_ptr<const LogMel> log_mel_;
  std::unique_ptr<AudioReader> reader_;
  std::optional<LogMelStream> stream_;
  std::vector<float> block_;
  int64_t num_samples_ = 0;
  int64_t num_frames_ = 0;
  float max_log_ = 0;
  // Logarithms of frames from first_row_ on, [rows, num_bands].
  std::vector<float> rows_;
  int64_t first_row_ = 0;
  int64_t first_kept_ = 0;  // those before are dropped as they are read
  bool is_at_end_ = false;
};

}  // namespace espalier
