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

constexpr int64_t kMaxPositions = 1024;
constexpr int64_t kMaxOutputs = INT64_MAX;

}  // namespace

Resampler::Resampler(int from_hz, int to_hz) {
  const int common = std::gcd(from_hz, to_hz);
  from_ = from_hz / common;
  to_ = to_hz / common;
  const SincFilter sinc(from_hz, to_hz);
  reach_ = static_cast<int>(std::ceil(sinc.reach()));
  positions_ = static_cast<int>(std::min(to_, kMaxPositions));
  first_ = 1 - reach_;
  input_.resize(reach_ - 1);
  if (from_ == to_) return;
  filter_.reserve(size_t(positions_ + 1) * 2 * reach_);
  for (int position = 0; position <= positions_; ++position) {
    const double offset = static_cast<double>(position) / positions_;
    for (int i = 1 - reach_; i <= reach_; ++i) {
      filter_.push_back(static_cast<float>(sinc(i - offset)));
    }
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
