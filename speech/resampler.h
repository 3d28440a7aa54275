// Resampler: audio of one sample rate as audio of another, run by run.
//
// Each output sample is a sum over input samples around its time, weighted by a
// sinc under a Kaiser window: 64 zero crossings to each side, a passband to 90%
// of the lower rate's Nyquist frequency, and at least 90 dB of attenuation from
// that frequency on. There is no delay: output n belongs to the time n / to_hz,
// and input before the beginning and after the end is 0.
//
// The filter is stored for at most 1024 positions in a period of the lower
// rate, and linearly interpolated where the two rates have more: the error of
// that is below -110 dB.
//
// Thread safety: none; one resampler a stream.
// Source: Julius O. Smith, "Digital Audio Resampling",
// https://ccrma.stanford.edu/~jos/resample/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

class Resampler {
 public:
  // REQUIRES: 1 <= from_hz <= kMaxRate, 1 <= to_hz <= kMaxRate. Computes
  // half of the filter's weights, some 0.3 us each.
  Resampler(int from_hz, int to_hz);

  static constexpr int kMaxRate = 1'000'000;

  // Appends to `out` what is known once `samples` are; the last outputs need
  // samples to come. REQUIRES: samples are finite; Finish was not called.
  void Push(std::span<const float> samples, std::vector<float>& out);

  // Appends the rest: in all there are ceil(pushed * to_hz / from_hz) samples.
  void Finish(std::vector<float>& out);

  // Memory of the stored filter, at most 520 KiB and 1 KiB more for each time
  // that the lower rate goes into from_hz; 0 if the rates are the same.
  size_t filter_bytes() const { return filter_.size() * sizeof(float); }

 private:
  // Appends the outputs whose input samples are all in `input_`, up to
  // `num_outputs` in all.
  void AppendKnown(int64_t num_outputs, std::vector<float>& out);

  // Constant after construction. The rates without common factors.
  int64_t from_;
  int64_t to_;
  int reach_;      // input samples that an output reads to each side
  int positions_;  // stored rows of the filter between two input samples
  // [positions_ + 1, 2 * reach_], the last row being the first moved by one
  std::vector<float> filter_;

  // The stream. input_[0] is sample first_ of the input; samples before 0 are
  // 0.
  std::vector<float> input_;
  int64_t first_;
  int64_t num_pushed_ = 0;
  int64_t num_out_ = 0;
};

}  // namespace espalier
