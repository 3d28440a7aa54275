// LogMel: the features that Whisper reads, logarithms of the energy of audio in
// frequency bands, frame by frame.
//
// Frame f looks at 400 samples (25 ms) around sample 160 f, under a periodic
// Hann window; the audio is reflected at both ends. The power spectrum of it,
// 201 bins from 0 to 8 kHz, is summed in bands by Slaney's triangular filters:
// linear up to 1 kHz, logarithmic above, of equal area. A feature is
//
//   (max(log10(max(energy, 1e-10)), m - 8) + 4) / 4
//
// where m is the largest logarithm of all that is transformed together:
// features depend on how much that is. So the two halves are apart: LogMel
// computes logarithms, as audio comes, and ScaleLogMel the rest, once m is
// known.
//
//   const LogMel log_mel(80);
//   LogMelStream stream(log_mel);
//   while (...) stream.Push(samples, logs);
//   stream.Finish(logs);
//   ScaleLogMel(*std::max_element(logs.begin(), logs.end()), logs);
//
// Frames are rows, [num_frames, num_bands]: the transpose of openai's array and
// of that of transformers. All is computed in double, within 1e-6 of openai's
// code run so; run in float32, that is some 1e-5 off itself. The runs in which
// audio is pushed change no bit.
//
// Source: openai/whisper, whisper/audio.py, log_mel_spectrogram; M. Slaney,
// "Auditory Toolbox", 1998.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

// Samples between two frames, 10 ms, and of the window of one.
inline constexpr int kFrameStep = 160;
inline constexpr int kFrameSize = 400;

// Sums of bins, one a band.
struct MelFilters {
  struct Band {
    int first_bin;
    int num_bins;
    int first_weight;  // index in `weights`; there are num_bins of them
  };
  std::vector<Band> bands;
  std::vector<double> weights;
};

// Returns Slaney's filters of 201 bins from 0 to 8 kHz.
// REQUIRES: num_bands >= 1.
MelFilters MakeMelFilters(int num_bands);

// Thread safety: immutable.
class LogMel {
 public:
  // Whisper has 80 bands, from large-v3 on 128. REQUIRES: 1 <= num_bands <=
  // 512.
  explicit LogMel(int num_bands);

  int num_bands() const { return static_cast<int>(filters_.bands.size()); }

  // The frames of so many samples; what is past the last whole step has none.
  static int64_t NumFrames(int64_t num_samples) {
    return num_samples / kFrameStep;
  }

  // Appends frames to `logs`, [num_frames, num_bands]. The samples of the first
  // begin at `samples`, those of each next one kFrameStep later.
  void AppendFrames(const float* samples, int num_frames,
                    std::vector<float>& logs) const;

 private:
  MelFilters filters_;
};

// The frames of audio that comes in runs.
//
// Thread safety: none; one stream an audio.
class LogMelStream {
 public:
  // `log_mel` outlives this.
  explicit LogMelStream(const LogMel& log_mel) : log_mel_(log_mel) {}

  // Appends the frames that are known once `samples` are, [frames, num_bands].
  // REQUIRES: samples are in [-1, 1]; Finish was not called.
  void Push(std::span<const float> samples, std::vector<float>& logs);

  // Appends the rest: in all NumFrames(pushed) frames.
  void Finish(std::vector<float>& logs);

 private:
  void AppendKnown(int64_t num_frames, std::vector<float>& logs);

  const LogMel& log_mel_;
  // Samples from those of frame num_out_ on, the reflected ones before the
  // beginning included; before there are enough to reflect, without them.
  std::vector<float> samples_;
  bool is_reflected_ = false;  // at the beginning
  int64_t num_pushed_ = 0;
  int64_t num_out_ = 0;
};

// Makes logarithms features; `max_log` is the largest that belongs to them.
void ScaleLogMel(float max_log, std::span<float> logs);

// Returns the features of `samples`, [NumFrames, num_bands], with the largest
// logarithm among them.
std::vector<float> LogMelFeatures(const LogMel& log_mel,
                                  std::span<const float> samples);

}  // namespace espalier
