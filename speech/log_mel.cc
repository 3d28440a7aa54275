#include "speech/log_mel.h"

#include <algorithm>
#include <cmath>

#include "speech/mel_frames.h"

namespace espalier {
namespace {

constexpr int kPadding = kFrameSize / 2;
constexpr double kMaxHz = 8000;

// Slaney's scale of pitch: 3 / 200 a Hz up to 15 at 1 kHz, and from there on 27
// for each factor of 6.4.
double MelOfHz(double hz) {
  return hz < 1000 ? hz * 3 / 200
                   : 15 + std::log(hz / 1000) * 27 / std::log(6.4);
}

double HzOfMel(double mel) {
  return mel < 15 ? mel * 200 / 3
                  : 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

// Maps a position before or after [0, size) into it, by reflection at the first
// and the last sample, as often as it takes.
int64_t Reflected(int64_t position, int64_t size) {
  if (size == 1) return 0;
  const int64_t period = 2 * (size - 1);
  const int64_t offset = (position % period + period) % period;
  return std::min(offset, period - offset);
}

}  // namespace

MelFilters MakeMelFilters(int num_bands) {
  // Band b rises from edge b to b + 1 and falls from there to b + 2.
  std::vector<double> edges;
  for (int i = 0; i < num_bands + 2; ++i) {
    edges.push_back(HzOfMel(MelOfHz(kMaxHz) * i / (num_bands + 1)));
  }
  MelFilters filters;
  for (int band = 0; band < num_bands; ++band) {
    const double low = edges[band];
    const double peak = edges[band + 1];
    const double high = edges[band + 2];
    MelFilters::Band sums{
        .first_bin = 0,
        .num_bins = 0,
        .first_weight = static_cast<int>(filters.weights.size())};
    for (int bin = 0; bin < kNumBins; ++bin) {
      const double hz = kMaxHz * bin / (kNumBins - 1);
      const double height =
          std::min((hz - low) / (peak - low), (high - hz) / (high - peak));
      if (height <= 0) continue;
      if (sums.num_bins++ == 0) sums.first_bin = bin;
      filters.weights.push_back(height * 2 / (high - low));
    }
    filters.bands.push_back(sums);
  }
  return filters;
}

LogMel::LogMel(int num_bands) : filters_(MakeMelFilters(num_bands)) {}

void LogMel::AppendFrames(const float* samples, int num_frames,
                          std::vector<float>& logs) const {
  const size_t before = logs.size();
  logs.resize(before + size_t(num_frames) * num_bands());
  WriteMelFrames(samples, num_frames, filters_, logs.data() + before);
}

void LogMelStream::Push(std::span<const float> samples,
                        std::vector<float>& logs) {
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  num_pushed_ += static_cast<int64_t>(samples.size());
  if (!is_reflected_) {
    if (num_pushed_ <= kPadding) return;
    std::vector<float> reflected(samples_.begin() + 1,
                                 samples_.begin() + 1 + kPadding);
    std::reverse(reflected.begin(), reflected.end());
    samples_.insert(samples_.begin(), reflected.begin(), reflected.end());
    is_reflected_ = true;
  }
  // A frame reads as many samples after its own as before.
  AppendKnown((num_pushed_ - kPadding) / kFrameStep + 1, logs);
}

void LogMelStream::Finish(std::vector<float>& logs) {
  const int64_t num_frames = LogMel::NumFrames(num_pushed_);
  if (num_frames == num_out_) return;
  // The position in the audio of samples_[0].
  const int64_t first = is_reflected_ ? num_out_ * kFrameStep - kPadding : 0;
  const std::vector<float> own = samples_;
  const auto at = [&](int64_t position) {
    return own[Reflected(position, num_pushed_) - first];
  };
  if (!is_reflected_) {
    samples_.clear();
    for (int64_t i = -kPadding; i < num_pushed_; ++i) samples_.push_back(at(i));
    is_reflected_ = true;
  }
  for (int64_t i = 0; i < kPadding; ++i) {
    samples_.push_back(at(num_pushed_ + i));
  }
  AppendKnown(num_frames, logs);
}

void LogMelStream::AppendKnown(int64_t num_frames, std::vector<float>& logs) {
  const int64_t count = num_frames - num_out_;
  if (count <= 0) return;
  log_mel_.AppendFrames(samples_.data(), static_cast<int>(count), logs);
  samples_.erase(samples_.begin(), samples_.begin() + count * kFrameStep);
  num_out_ += count;
}

void ScaleLogMel(float max_log, std::span<float> logs) {
  for (float& log : logs) log = (std::max(log, max_log - 8) + 4) / 4;
}

std::vector<float> LogMelFeatures(const LogMel& log_mel,
                                  std::span<const float> samples) {
  LogMelStream stream(log_mel);
  std::vector<float> logs;
  stream.Push(samples, logs);
  stream.Finish(logs);
  if (!logs.empty())
    ScaleLogMel(*std::max_element(logs.begin(), logs.end()), logs);
  return logs;
}

}  // namespace espalier
