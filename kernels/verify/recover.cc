#include "kernels/verify/recover.h"

#include <algorithm>
#include <vector>

#include "kernels/sample/sample.h"

namespace espalier {
namespace {

constexpr int kBlockSize = 1024;
// Independent sums, which the compiler can vectorise.
constexpr int kLanes = 8;

// max(p - q, 0) of tokens.
class Residual {
 public:
  Residual(const TokenWeights& p, const TokenWeights& q)
      : p_(p.weights.data()),
        q_(q.weights.data()),
        of_p_(1 / p.total),
        of_q_(q.total > 0 ? 1 / q.total : 0),
        size_(static_cast<int>(p.weights.size())) {
    for (int begin = 0; begin < size_; begin += kBlockSize) {
      blocks_.push_back(MassOf(begin, EndOf(begin)));
      mass_ += blocks_.back();
    }
  }

  double mass() const { return mass_; }

  // REQUIRES: mass() > 0.
  TokenId Draw(double uniform) const {
    const double target = uniform * mass_;
    double sum = 0;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (sum + blocks_[b] <= target) {
        sum += blocks_[b];
        continue;
      }
      const TokenId token =
          DrawWithin(static_cast<int>(b) * kBlockSize, target, sum);
      if (token != kNoToken) return token;
    }
    return LastToken();
  }

 private:
  int EndOf(int begin) const { return std::min(begin + kBlockSize, size_); }
  double At(int token) const {
    return std::max(p_[token] * of_p_ - q_[token] * of_q_, 0.0);
  }

  double MassOf(int begin, int end) const {
    double lanes[kLanes] = {};
    int token = begin;
    for (; token + kLanes <= end; token += kLanes) {
      for (int l = 0; l < kLanes; ++l) lanes[l] += At(token + l);
    }
    for (; token < end; ++token) lanes[0] += At(token);
    double mass = 0;
    for (const double lane : lanes) mass += lane;
    return mass;
  }

  // Returns kNoToken if the block ends before `sum` exceeds `target`.
  TokenId DrawWithin(int begin, double target, double& sum) const {
    for (int token = begin; token < EndOf(begin); ++token) {
      const double mass = At(token);
      sum += mass;
      if (mass > 0 && sum > target) return token;
    }
    return kNoToken;
  }

  TokenId LastToken() const {
    TokenId last = kNoToken;
    for (int token = 0; token < size_; ++token) {
      if (At(token) > 0) last = token;
    }
    return last;
  }

  const float* p_;
  const float* q_;
  double of_p_;
  double of_q_;
  int size_;
  std::vector<double> blocks_;
  double mass_ = 0;
};

}  // namespace

TokenId DrawRecovered(const TokenWeights& p, const TokenWeights& q,
                      double uniform) {
  const Residual residual(p, q);
  if (residual.mass() > 0) return residual.Draw(uniform);
  return Residual(p, {.weights = q.weights, .total = 0}).Draw(uniform);
}

}  // namespace espalier
