// Histogram: how many values lie in each of some fixed buckets, as Prometheus
// counts them: a bucket ends at its bound, which belongs to it, and the last
// one has no end. Values are whole numbers, such as nanoseconds or tokens, so
// that sums are exact.
//
//   Histogram steps(kStepBounds);
//   steps.Add(1'200'000);
//
// Allocates nothing; values that come several times in a row, as the groups of
// one step have them, are not looked up again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace espalier {

class Histogram {
 public:
  static constexpr size_t kMaxBounds = 23;

  // One bucket.
  Histogram() = default;
  // A bucket for each of `bounds`, and the last one. The bounds outlive this
  // and its copies.
  // REQUIRES: `bounds` ascend; at most kMaxBounds.
  explicit Histogram(std::span<const int64_t> bounds) : bounds_(bounds) {}

  void Add(int64_t value) {
    if (count_ == 0 || value != last_value_) FindBucket(value);
    ++counts_[last_bucket_];
    ++count_;
    sum_ += value;
  }

  std::span<const int64_t> bounds() const { return bounds_; }
  // Values in each bucket, those of the ones before it not included.
  std::span<const int64_t> counts() const {
    return std::span(counts_).first(bounds_.size() + 1);
  }
  int64_t count() const { return count_; }
  int64_t sum() const { return sum_; }

 private:
  // Not inlined: it is rarely called where Add is.
  [[gnu::noinline]] void FindBucket(int64_t value) {
    last_value_ = value;
    last_bucket_ = std::lower_bound(bounds_.begin(), bounds_.end(), value) -
                   bounds_.begin();
  }

  std::span<const int64_t> bounds_;
  std::array<int64_t, kMaxBounds + 1> counts_ = {};
  int64_t count_ = 0;
  int64_t sum_ = 0;
  int64_t last_value_ = 0;
  size_t last_bucket_ = 0;
};

}  // namespace espalier
