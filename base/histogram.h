// Histogram: counts of values in fixed buckets, as in Prometheus: bounds are
// inclusive upper bounds, and the last bucket has none. Values are integers,
// such as nanoseconds or tokens, so that sums are exact.
//
//   Histogram steps(kStepBounds);
//   steps.Add(1'200'000);
//
// Does not allocate. Repeated values, as from the groups of one step, need no
// second lookup.
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

  // Creates a single bucket.
  Histogram() = default;
  // Creates a bucket for each of `bounds`, and the last one.
  // REQUIRES: `bounds` are ascending, at most kMaxBounds, and outlive this and
  // its copies.
  explicit Histogram(std::span<const int64_t> bounds) : bounds_(bounds) {}

  void Add(int64_t value) {
    if (count_ == 0 || value != last_value_) FindBucket(value);
    ++counts_[last_bucket_];
    ++count_;
    sum_ += value;
  }

  std::span<const int64_t> bounds() const { return bounds_; }
  // Number of values in each bucket, not cumulative.
  std::span<const int64_t> counts() const {
    return std::span(counts_).first(bounds_.size() + 1);
  }
  int64_t count() const { return count_; }
  int64_t sum() const { return sum_; }

 private:
  // Not inlined, since Add() rarely calls it.
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
