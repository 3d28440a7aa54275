#include "speech/voice_activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/speech/signals.h"

namespace espalier {
namespace {

using ::espalier::testing::LargestDifference;
using ::espalier::testing::Noise;
using ::espalier::testing::Sine;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Tensors = std::map<std::string, VoiceTensor>;

// Weights of the size at which neither gates nor layers saturate.
Tensors RandomTensors(int seed) {
  const std::pair<std::string, std::vector<int64_t>> shapes[] = {
      {"stft_conv.weight", {258, 1, 256}},
      {"conv1.weight", {128, 129, 3}},
      {"conv1.bias", {128}},
      {"conv2.weight", {64, 128, 3}},
      {"conv2.bias", {64}},
      {"conv3.weight", {64, 64, 3}},
      {"conv3.bias", {64}},
      {"conv4.weight", {128, 64, 3}},
      {"conv4.bias", {128}},
      {"lstm_cell.weight_ih", {512, 128}},
      {"lstm_cell.weight_hh", {512, 128}},
      {"lstm_cell.bias_ih", {512}},
      {"lstm_cell.bias_hh", {512}},
      {"final_conv.weight", {1, 128, 1}},
      {"final_conv.bias", {1}}};
  std::mt19937 random(seed);
  Tensors tensors;
  for (const auto& [name, shape] : shapes) {
    int64_t size = 1;
    for (const int64_t n : shape) size *= n;
    const auto fan_in = static_cast<float>(size / shape[0]);
    std::normal_distribution<float> values(0, 1.5f / std::sqrt(fan_in));
    VoiceTensor& tensor = tensors[name];
    tensor.shape = shape;
    for (int64_t i = 0; i < size; ++i) {
      tensor.values.push_back(values(random) * (fan_in == 1 ? 0.1f : 1));
    }
  }
  return tensors;
}

// The network by its definition, in double, a window at a time.
class Twin {
 public:
  explicit Twin(const Tensors& tensors) : tensors_(tensors) {}

  std::vector<double> Run(std::vector<float> samples) {
    samples.resize((samples.size() + 511) / 512 * 512);
    samples.insert(samples.begin(), 64, 0.0f);
    std::vector<double> probabilities;
    for (size_t begin = 0; begin + 576 <= samples.size(); begin += 512) {
      std::vector<double> window(samples.begin() + begin,
                                 samples.begin() + begin + 576);
      for (int i = 0; i < 64; ++i) window.push_back(window[574 - i]);
      probabilities.push_back(Window(window));
    }
    return probabilities;
  }

 private:
  using Rows = std::vector<std::vector<double>>;  // [time][channel]

  const std::vector<float>& Values(const std::string& name) const {
    return tensors_.at(name).values;
  }

  Rows Conv(const Rows& in, const std::string& name, int stride) const {
    const auto& weights = Values(name + ".weight");
    const auto& biases = Values(name + ".bias");
    const int num_inputs = static_cast<int>(in[0].size());
    Rows out;
    for (int center = 0; center < std::ssize(in); center += stride) {
      std::vector<double>& row = out.emplace_back();
      for (size_t o = 0; o < biases.size(); ++o) {
        double sum = biases[o];
        for (int tap = -1; tap <= 1; ++tap) {
          if (center + tap < 0 || center + tap >= std::ssize(in)) continue;
          for (int i = 0; i < num_inputs; ++i) {
            sum += in[center + tap][i] *
                   weights[(o * num_inputs + i) * 3 + tap + 1];
          }
        }
        row.push_back(std::max(0.0, sum));
      }
    }
    return out;
  }

  double Window(const std::vector<double>& samples) {
    Rows rows;
    const auto& basis = Values("stft_conv.weight");
    for (int frame = 0; frame < 4; ++frame) {
      std::vector<double> parts;
      for (int part = 0; part < 258; ++part) {
        double sum = 0;
        for (int i = 0; i < 256; ++i) {
          sum += basis[part * 256 + i] * samples[frame * 128 + i];
        }
        parts.push_back(sum);
      }
      std::vector<double>& row = rows.emplace_back();
      for (int bin = 0; bin < 129; ++bin) {
        row.push_back(std::hypot(parts[bin], parts[bin + 129]));
      }
    }
    rows = Conv(rows, "conv1", 1);
    rows = Conv(rows, "conv2", 2);
    rows = Conv(rows, "conv3", 2);
    rows = Conv(rows, "conv4", 1);
    EXPECT_EQ(rows.size(), 1u);
    return Lstm(rows[0]);
  }

  double Lstm(const std::vector<double>& input) {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const auto gate = [&](int index) {
      double sum = Values("lstm_cell.bias_ih")[index] +
                   Values("lstm_cell.bias_hh")[index];
      for (int i = 0; i < 128; ++i) {
        sum += input[i] * Values("lstm_cell.weight_ih")[index * 128 + i] +
               hidden_[i] * Values("lstm_cell.weight_hh")[index * 128 + i];
      }
      return sum;
    };
    std::vector<double> hidden;
    for (int i = 0; i < 128; ++i) {
      cell_[i] = sigmoid(gate(128 + i)) * cell_[i] +
                 sigmoid(gate(i)) * std::tanh(gate(256 + i));
      hidden.push_back(sigmoid(gate(384 + i)) * std::tanh(cell_[i]));
    }
    hidden_ = hidden;
    double sum = Values("final_conv.bias")[0];
    for (int i = 0; i < 128; ++i) {
      sum += std::max(0.0, hidden_[i]) * Values("final_conv.weight")[i];
    }
    return sigmoid(sum);
  }

  const Tensors& tensors_;
  std::vector<double> hidden_ = std::vector<double>(128);
  std::vector<double> cell_ = std::vector<double>(128);
};

std::vector<float> ProbabilitiesOf(const VoiceActivity& network,
                                   const std::vector<float>& samples,
                                   size_t run) {
  VoiceActivityStream stream(network);
  std::vector<float> probabilities;
  for (size_t i = 0; i < samples.size(); i += run) {
    stream.Push(
        std::span(samples).subspan(i, std::min(run, samples.size() - i)),
        &probabilities);
  }
  stream.Finish(&probabilities);
  return probabilities;
}

TEST(VoiceActivityTest, ProbabilitiesAreThoseOfTheDefinition) {
  const Tensors tensors = RandomTensors(1);
  const auto network = VoiceActivity::Create(tensors);
  ASSERT_TRUE(network.ok()) << network.status();
  std::vector<float> samples = Sine(440, 16000, 5000, 0.5);
  for (const float value : Noise(5003, 0.8f)) samples.push_back(value);
  const std::vector<double> expected = Twin(tensors).Run(samples);
  EXPECT_EQ(expected.size(), 20u);
  EXPECT_LT(
      LargestDifference(ProbabilitiesOf(*network, samples, 10'003), expected),
      1e-5);
  // They are not the same number 20 times.
  EXPECT_GT(
      *std::ranges::max_element(expected) - *std::ranges::min_element(expected),
      1e-2);
}

TEST(VoiceActivityTest, RunsChangeNoBit) {
  const auto network = VoiceActivity::Create(RandomTensors(2));
  ASSERT_TRUE(network.ok());
  for (const int size : {0, 1, 511, 512, 513, 1024, 40'000}) {
    const std::vector<float> samples = Noise(size, 0.5f);
    const std::vector<float> whole =
        ProbabilitiesOf(*network, samples, 100'000);
    EXPECT_EQ(std::ssize(whole), (size + 511) / 512);
    for (const size_t run : {1, 100, 511, 512, 4096}) {
      EXPECT_EQ(ProbabilitiesOf(*network, samples, run), whole)
          << size << " by " << run;
    }
  }
}

TEST(VoiceActivityTest, TensorsThatAreNotTheNetworksAreErrors) {
  const auto error = [](const auto& change) {
    Tensors tensors = RandomTensors(3);
    change(&tensors);
    return std::string(VoiceActivity::Create(tensors).status().message());
  };
  EXPECT_THAT(error([](Tensors* all) { all->erase("conv2.bias"); }),
              HasSubstr("\"conv2.bias\" is missing"));
  EXPECT_THAT(error([](Tensors* all) {
                (*all)["conv5.bias"] = {{1}, {0}};
              }),
              HasSubstr("\"conv5.bias\" is not of the network"));
  EXPECT_THAT(
      error([](Tensors* all) {
        (*all)["conv2.bias"].shape = {8, 8};
      }),
      AllOf(HasSubstr("\"conv2.bias\" must have shape [64], got [8, 8]")));
  EXPECT_THAT(error([](Tensors* all) {
                (*all)["conv2.bias"].values[3] =
                    std::numeric_limits<float>::infinity();
              }),
              HasSubstr("\"conv2.bias\" has a value that is not a finite"));
}

}  // namespace
}  // namespace espalier
