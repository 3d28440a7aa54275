#include "model/positions.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/load_as_float.h"
#include "base/status.h"

namespace espalier {
namespace {

//   distance  of a key, less than 0 before the query
int BucketOf(int distance, int num_buckets, int max_distance, bool sees_all) {
  int first = 0;
  if (sees_all) {
    num_buckets /= 2;
    if (distance > 0) first = num_buckets;
  }
  const int length = sees_all ? std::abs(distance) : std::max(-distance, 0);
  const int num_exact = num_buckets / 2;
  if (length < num_exact) return first + length;
  const float range = static_cast<float>(
      std::log(static_cast<double>(max_distance) / num_exact));
  const float place =
      std::log(static_cast<float>(length) / static_cast<float>(num_exact)) /
      range * static_cast<float>(num_buckets - num_exact);
  return first + std::min(num_exact + static_cast<int>(place), num_buckets - 1);
}

}  // namespace

std::vector<float> SinusoidalPositions(int num_positions, int size) {
  std::vector<float> table;
  table.reserve(size_t(num_positions) * size);
  for (int position = 0; position < num_positions; ++position) {
    const auto angle = [&](int i) {
      return position / std::pow(10000.0, 2.0 * i / size);
    };
    for (int i = 0; i < (size + 1) / 2; ++i) {
      table.push_back(static_cast<float>(std::sin(angle(i))));
    }
    for (int i = 0; i < size / 2; ++i) {
      table.push_back(static_cast<float>(std::cos(angle(i))));
    }
  }
  return table;
}

std::vector<float> Tensor2TensorPositions(int first, int num_positions,
                                          int size) {
  const int half = size / 2;
  const auto step = static_cast<float>(-std::log(10000.0) / (half - 1));
  std::vector<float> table(size_t(num_positions) * size);
  for (int position = 0; position < num_positions; ++position) {
    float* const row = &table[size_t(position) * size];
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(first + position) *
                          std::exp(static_cast<float>(i) * step);
      row[i] = std::sin(angle);
      row[half + i] = std::cos(angle);
    }
  }
  return table;
}

std::vector<float> SinusoidTable(const TransformerConfig& config,
                                 int num_positions) {
  if (config.sinusoids == SinusoidKind::kTensor2Tensor) {
    return Tensor2TensorPositions(config.position_offset, num_positions,
                                  config.hidden_size);
  }
  return SinusoidalPositions(num_positions, config.hidden_size);
}

absl::Status CheckSinusoidalPositions(std::span<const std::byte> stored,
                                      DType dtype, int num_positions,
                                      int size) {
  constexpr float kTolerance = 1e-3f;
  constexpr float kRounding = 0x1p-8f;  // bf16's, the coarsest
  const std::vector<float> computed = SinusoidalPositions(num_positions, size);
  for (size_t i = 0; i < computed.size(); ++i) {
    const float value = LoadAsFloat(&stored[i * NumBytes(dtype)], dtype);
    const float rounding =
        dtype == DType::kFloat32 ? 0.0f : kRounding * std::abs(computed[i]);
    if (std::abs(value - computed[i]) <= kTolerance + rounding) continue;
    return InvalidArgument("must hold sinusoidal positions, ", computed[i],
                           " at [", i / size, ", ", i % size, "], got ", value);
  }
  return absl::OkStatus();
}

std::vector<float> BiasesByDistance(std::span<const float> buckets,
                                    int num_heads, int max_distance,
                                    bool sees_all) {
  const int num_buckets = static_cast<int>(buckets.size()) / num_heads;
  std::vector<float> biases;
  for (int head = 0; head < num_heads; ++head) {
    for (int distance = -max_distance; distance <= max_distance; ++distance) {
      const int bucket =
          BucketOf(distance, num_buckets, max_distance, sees_all);
      biases.push_back(buckets[size_t(bucket) * num_heads + head]);
    }
  }
  return biases;
}

}  // namespace espalier
