// VoiceActivity: Silero's network for voice activity detection (VAD), the
// probability of speech in each 32 ms of audio.
//
// A window is 512 samples at 16 kHz, with the 64 before it. Four spectra of
// 256 samples each become magnitudes, three layers of convolutions reduce them
// to one vector of 128 numbers, and an LSTM over the windows says what it has
// heard so far:
//
//   samples [576, 64 of them reflected] -> STFT [4, 129] -> conv 128 -> conv
//   64, stride 2 -> conv 64, stride 2 -> conv 128 -> LSTM 128 -> sigmoid
//
// The tensors are those of silero_vad_16k.safetensors, which the Python package
// silero-vad has (MIT licence), 1.2 MB.
//
//   VoiceActivityStream stream(network);
//   while (...) stream.Push(samples, probabilities);
//   stream.Finish(probabilities);
//
// All is computed in float32; the runs in which audio is pushed change no bit.
//
// Source: snakers4/silero-vad, src/silero_vad/tinygrad_model.py.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/matmul/packed_matrix.h"

namespace espalier {

struct VoiceTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};

// Thread safety: immutable.
class VoiceActivity {
 public:
  static constexpr int kWindow = 512;  // samples of a probability
  static constexpr int kContext = 64;  // samples before them
  static constexpr int kNumHidden = 128;

  // Errors: kInvalidArgument naming the tensor that is missing, is not known,
  // has another shape or a value that is not finite.
  static absl::StatusOr<VoiceActivity> Create(
      const std::map<std::string, VoiceTensor>& tensors);

  // The LSTM between two windows.
  struct State {
    std::array<float, kNumHidden> hidden = {};
    std::array<float, kNumHidden> cell = {};
  };

  // Appends the probabilities of windows to `probabilities` and advances
  // `state`. All but the LSTM runs on `pool`, in blocks of windows.
  //   samples  [kContext + n * kWindow]  from the context of the first on
  // REQUIRES: samples are finite.
  void AppendProbabilities(std::span<const float> samples, State* state,
                           ThreadPool& pool,
                           std::vector<float>* probabilities) const;

 private:
  VoiceActivity() = default;
  // Computes the products of the LSTM's input, [num_windows, 4 * kNumHidden].
  //   samples  from the context of the first window on
  void WriteInputs(std::span<const float> samples, int num_windows,
                   std::span<float> inputs) const;
  // The LSTM's step, from the products of its input, [4 * kNumHidden].
  void Advance(std::span<const float> input, State* state) const;

  PackedMatrix stft_;                  // [2 * bins, samples]
  std::array<PackedMatrix, 4> convs_;  // [channels, 3 * inputs], taps first
  std::array<std::vector<float>, 4> conv_biases_;
  PackedMatrix lstm_input_;       // [4 * kNumHidden, kNumHidden]
  PackedMatrix lstm_hidden_;      // [4 * kNumHidden, kNumHidden]
  std::vector<float> lstm_bias_;  // [4 * kNumHidden]
  std::vector<float> output_;     // [kNumHidden]
  float output_bias_ = 0;
};

// The probabilities of audio that comes in runs.
//
// Thread safety: none; one stream an audio.
class VoiceActivityStream {
 public:
  // Samples that are pushed at once keep this many threads busy at least.
  static constexpr int kSamplesOfThread = 1 << 15;

  // `network`, and `pool` unless it is null, outlive this. Null: the network
  // runs on the caller's thread alone.
  explicit VoiceActivityStream(const VoiceActivity& network,
                               ThreadPool* pool = nullptr)
      : network_(network),
        pool_(pool != nullptr ? *pool : alone_),
        samples_(VoiceActivity::kContext, 0.0f) {}

  // Appends what is known once `samples` are, a number a window.
  // REQUIRES: samples are finite; Finish was not called.
  void Push(std::span<const float> samples, std::vector<float>* probabilities);

  // Appends the last, whose window is filled with zeros, unless it is empty.
  void Finish(std::vector<float>* probabilities);

 private:
  const VoiceActivity& network_;
  ThreadPool alone_;
  ThreadPool& pool_;
  VoiceActivity::State state_;
  std::vector<float> samples_;  // the context, and what is of no window yet
};

}  // namespace espalier
