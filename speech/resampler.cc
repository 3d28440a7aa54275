#include "speech/resampler.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/ceil_div.h"
#include "speech/filter_rows.h"
#include "speech/sinc_filter.h"

namespace espalier {
namespace {

// Stored rows of the filter in a period of the lower rate.
constexpr double kMaxPositions = 1024;
constexpr int64_t kMaxOutputs = INT64_MAX;

}  // namespace

Resampler::Resampler(int from_hz, int to_hz) {
  const int common = std::gcd(from_hz, to_hz);
  from_ = from_hz / common;
  to_ = to_hz / common;
  const SincFilter sinc(from_hz, to_hz);
  reach_ = static_cast<int>(std::ceil(sinc.reach()));
  // As reach_ grows, the filter changes less from one input sample to the next.
  const double max_positions = std::ceil(
      kMaxPositions * std::min(1.0, static_cast<double>(to_) / from_));
  positions_ = static_cast<int>(std::min<double>(to_, max_positions));
  first_ = 1 - reach_;
  input_.resize(reach_ - 1);
  if (from_ == to_) return;
  // Symmetric as a whole: the last row backwards is the first.
  const size_t row_size = size_t{2} * reach_;
  filter_.resize((positions_ + 1) * row_size);
  for (size_t i = 0; i < filter_.size() / 2; ++i) {
    const double position = static_cast<double>(i / row_size) / positions_;
    const double sample = static_cast<double>(i % row_size) + 1 - reach_;
    filter_[i] = static_cast<float>(sinc(sample - position));
    filter_[filter_.size() - 1 - i] = filter_[i];
  }
}

void Resampler::Push(std::span<const float> samples, std::vector<float>& out) {
  if (from_ == to_) {
    out.insert(out.end(), samples.begin(), samples.end());
    return;
  }
  input_.insert(input_.end(), samples.begin(), samples.end());
  num_pushed_ += static_cast<int64_t>(samples.size());
  AppendKnown(kMaxOutputs, out);
}

void Resampler::Finish(std::vector<float>& out) {
  if (from_ == to_) return;
  input_.resize(input_.size() + reach_);
  AppendKnown(CeilDiv(num_pushed_ * to_, from_), out);
}

void Resampler::AppendKnown(int64_t num_outputs, std::vector<float>& out) {
  const int64_t end = first_ + static_cast<int64_t>(input_.size());
  const size_t row_size = size_t{2} * reach_;
  int64_t from = 0;  // the first sample that the next output reads
  for (; num_out_ < num_outputs; ++num_out_) {
    const int64_t before = num_out_ * from_ / to_;
    from = before + 1 - reach_;
    if (before + reach_ >= end) break;
    // Between the rows of two positions; exact where to_ has as many.
    const int64_t numerator = (num_out_ * from_ % to_) * positions_;
    const float* row = filter_.data() + numerator / to_ * row_size;
    const float fraction = static_cast<float>(numerator % to_) / to_;
    out.push_back(FilteredRow(input_.data() + (from - first_), row,
                              row + row_size, fraction,
                              static_cast<int>(row_size)));
  }
  // Samples that no output to come reads.
  const int64_t read = std::clamp<int64_t>(from - first_, 0, input_.size());
  input_.erase(input_.begin(), input_.begin() + read);
  first_ += read;
}

}  // namespace espalier
