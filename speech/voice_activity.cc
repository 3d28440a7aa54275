#include "speech/voice_activity.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <new>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/dtype.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "kernels/matmul/matmul.h"

namespace espalier {
namespace {

constexpr int kWindow = VoiceActivity::kWindow;
constexpr int kContext = VoiceActivity::kContext;
constexpr int kSpectrumSize = 256;  // samples
constexpr int kSpectrumStep = 128;
constexpr int kNumSpectra = 4;
constexpr int kNumVoiceBins = kSpectrumSize / 2 + 1;
constexpr int kTaps = 3;
// Windows whose convolutions are computed together.
constexpr int kBlock = 64;

struct ConvShape {
  int num_inputs;
  int num_outputs;
  int stride;
};
constexpr ConvShape kConvs[] = {
    {kNumVoiceBins, 128, 1}, {128, 64, 2}, {64, 64, 2}, {64, 128, 1}};

PackedMatrix Pack(std::span<const float> values, int num_rows, int num_cols) {
  ThreadPool alone;
  const PackedMatrix::Part part = {.data = std::as_bytes(values),
                                   .dtype = DType::kFloat32,
                                   .num_rows = num_rows};
  return PackedMatrix::Pack({&part, 1}, num_cols, alone);
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += Concat(i > 0 ? ", " : "", shape[i]);
  }
  return text + "]";
}

// Reads tensors, each once, and remembers the first error.
class TensorReader {
 public:
  explicit TensorReader(const std::map<std::string, VoiceTensor>& tensors)
      : tensors_(tensors) {}

  // Returns the values of a tensor, or zeros after an error.
  std::vector<float> Take(const std::string& name,
                          std::initializer_list<int64_t> shape) {
    int64_t size = 1;
    for (const int64_t n : shape) size *= n;
    taken_.insert(name);
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      Fail(Concat("tensor ", BytesInQuotes(name), " is missing"));
    } else if (!std::ranges::equal(found->second.shape, shape) ||
               std::ssize(found->second.values) != size) {
      Fail(Concat("tensor ", BytesInQuotes(name), " must have shape ",
                  ShapeText(std::span(shape.begin(), shape.size())), ", got ",
                  ShapeText(found->second.shape)));
    } else if (!std::ranges::all_of(found->second.values, [](float value) {
                 return std::isfinite(value);
               })) {
      Fail(Concat("tensor ", BytesInQuotes(name),
                  " has a value that is not a finite number"));
    } else {
      return found->second.values;
    }
    return std::vector<float>(static_cast<size_t>(size));
  }

  // Returns the status; an error if a tensor was not taken.
  absl::Status Finish() {
    for (const auto& [name, tensor] : tensors_) {
      if (!taken_.contains(name)) {
        Fail(Concat("tensor ", BytesInQuotes(name), " is not of the network"));
      }
    }
    return status_;
  }

 private:
  void Fail(const std::string& message) {
    if (status_.ok()) status_ = InvalidArgument(message);
  }

  const std::map<std::string, VoiceTensor>& tensors_;
  std::set<std::string> taken_;
  absl::Status status_;
};

// Returns [outputs, inputs, taps] as [outputs, taps, inputs].
std::vector<float> TapsFirst(std::span<const float> weights,
                             const ConvShape& shape) {
  std::vector<float> out(weights.size());
  for (int o = 0; o < shape.num_outputs; ++o) {
    for (int i = 0; i < shape.num_inputs; ++i) {
      for (int tap = 0; tap < kTaps; ++tap) {
        out[(o * kTaps + tap) * shape.num_inputs + i] =
            weights[(o * shape.num_inputs + i) * kTaps + tap];
      }
    }
  }
  return out;
}

// Returns the rows of a convolution's product, [blocks * outputs, taps *
// inputs], of `rows`, [blocks * length, inputs]: zeros beyond each block.
std::vector<float> GatherTaps(std::span<const float> rows, int length,
                              const ConvShape& shape) {
  const int size = shape.num_inputs;
  const int num_blocks = static_cast<int>(rows.size()) / (length * size);
  const int num_outputs = (length - 1) / shape.stride + 1;
  std::vector<float> out(static_cast<size_t>(num_blocks) * num_outputs * kTaps *
                         size);
  float* to = out.data();
  for (int block = 0; block < num_blocks; ++block) {
    for (int o = 0; o < num_outputs; ++o) {
      for (int tap = 0; tap < kTaps; ++tap, to += size) {
        const int from = o * shape.stride + tap - 1;
        if (from < 0 || from >= length) continue;
        std::copy_n(&rows[(block * length + from) * size], size, to);
      }
    }
  }
  return out;
}

std::vector<float> Product(std::span<const float> x, const PackedMatrix& w) {
  ThreadPool alone;
  std::vector<float> y(x.size() / w.num_cols() * w.num_rows());
  MatMul(x, w, y, alone);
  return y;
}

// Magnitudes of the spectra of windows, [n * kNumSpectra, kNumVoiceBins].
std::vector<float> Magnitudes(std::span<const float> samples, int num_windows,
                              const PackedMatrix& stft) {
  std::vector<float> frames;
  frames.reserve(static_cast<size_t>(num_windows) * kNumSpectra *
                 kSpectrumSize);
  for (int window = 0; window < num_windows; ++window) {
    std::array<float, kContext + kWindow + kContext> all;
    const auto own = samples.subspan(static_cast<size_t>(window) * kWindow,
                                     kContext + kWindow);
    std::ranges::copy(own, all.begin());
    for (int i = 0; i < kContext; ++i) {
      all[own.size() + i] = own[own.size() - 2 - i];
    }
    for (int spectrum = 0; spectrum < kNumSpectra; ++spectrum) {
      const auto begin = all.begin() + spectrum * kSpectrumStep;
      frames.insert(frames.end(), begin, begin + kSpectrumSize);
    }
  }
  const std::vector<float> parts = Product(frames, stft);
  std::vector<float> out(parts.size() / 2);
  for (size_t row = 0; row < out.size() / kNumVoiceBins; ++row) {
    const float* const real = &parts[row * 2 * kNumVoiceBins];
    for (int bin = 0; bin < kNumVoiceBins; ++bin) {
      const float imaginary = real[kNumVoiceBins + bin];
      out[row * kNumVoiceBins + bin] =
          std::sqrt(real[bin] * real[bin] + imaginary * imaginary);
    }
  }
  return out;
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
// Within some 1e-7, at a tenth of the time of std::tanh.
float Tanh(float x) { return 2.0f * Sigmoid(2.0f * x) - 1.0f; }

}  // namespace

absl::StatusOr<VoiceActivity> VoiceActivity::Create(
    const std::map<std::string, VoiceTensor>& tensors) {
  TensorReader reader(tensors);
  VoiceActivity network;
  network.stft_ = Pack(
      reader.Take("stft_conv.weight", {2 * kNumVoiceBins, 1, kSpectrumSize}),
      2 * kNumVoiceBins, kSpectrumSize);
  for (size_t i = 0; i < std::size(kConvs); ++i) {
    const ConvShape& shape = kConvs[i];
    const std::string name = Concat("conv", i + 1);
    const std::vector<float> weights = reader.Take(
        name + ".weight", {shape.num_outputs, shape.num_inputs, kTaps});
    network.convs_[i] = Pack(TapsFirst(weights, shape), shape.num_outputs,
                             kTaps * shape.num_inputs);
    network.conv_biases_[i] = reader.Take(name + ".bias", {shape.num_outputs});
  }
  constexpr int kGates = 4 * kNumHidden;
  network.lstm_input_ =
      Pack(reader.Take("lstm_cell.weight_ih", {kGates, kNumHidden}), kGates,
           kNumHidden);
  network.lstm_hidden_ =
      Pack(reader.Take("lstm_cell.weight_hh", {kGates, kNumHidden}), kGates,
           kNumHidden);
  network.lstm_bias_ = reader.Take("lstm_cell.bias_ih", {kGates});
  const std::vector<float> hidden_bias =
      reader.Take("lstm_cell.bias_hh", {kGates});
  for (int i = 0; i < kGates; ++i) network.lstm_bias_[i] += hidden_bias[i];
  network.output_ = reader.Take("final_conv.weight", {1, kNumHidden, 1});
  network.output_bias_ = reader.Take("final_conv.bias", {1})[0];
  RETURN_IF_ERROR(reader.Finish());
  return network;
}

void VoiceActivity::Advance(std::span<const float> input, State* state) const {
  std::array<float, 4 * kNumHidden> gates;
  ThreadPool alone;
  MatMul(state->hidden, lstm_hidden_, gates, alone);
  for (size_t i = 0; i < gates.size(); ++i) {
    gates[i] += input[i] + lstm_bias_[i];
  }
  for (int i = 0; i < kNumHidden; ++i) {
    const float in = Sigmoid(gates[i]);
    const float forget = Sigmoid(gates[kNumHidden + i]);
    const float proposed = Tanh(gates[2 * kNumHidden + i]);
    const float out = Sigmoid(gates[3 * kNumHidden + i]);
    state->cell[i] = forget * state->cell[i] + in * proposed;
    state->hidden[i] = out * Tanh(state->cell[i]);
  }
}

void VoiceActivity::WriteInputs(std::span<const float> samples, int num_windows,
                                std::span<float> inputs) const {
  std::vector<float> rows = Magnitudes(samples, num_windows, stft_);
  int length = kNumSpectra;
  for (size_t i = 0; i < convs_.size(); ++i) {
    rows = Product(GatherTaps(rows, length, kConvs[i]), convs_[i]);
    length = (length - 1) / kConvs[i].stride + 1;
    const std::vector<float>& bias = conv_biases_[i];
    for (size_t at = 0; at < rows.size(); at += bias.size()) {
      for (size_t j = 0; j < bias.size(); ++j) {
        rows[at + j] = std::max(0.0f, rows[at + j] + bias[j]);
      }
    }
  }
  std::ranges::copy(Product(rows, lstm_input_), inputs.begin());
}

void VoiceActivity::AppendProbabilities(
    std::span<const float> samples, State* state, ThreadPool& pool,
    std::vector<float>* probabilities) const {
  CHECK_EQ((samples.size() - kContext) % kWindow, 0u);
  constexpr size_t kGates = 4 * kNumHidden;
  const int num_windows =
      static_cast<int>((samples.size() - kContext) / kWindow);
  std::vector<float> inputs(num_windows * kGates);
  std::atomic<bool> lacks_memory = false;  // a loop's bodies do not throw
  pool.ParallelFor((num_windows + kBlock - 1) / kBlock, [&](int block) {
    const int first = block * kBlock;
    const int count = std::min(kBlock, num_windows - first);
    try {
      WriteInputs(samples.subspan(size_t(first) * kWindow), count,
                  std::span(inputs).subspan(first * kGates, count * kGates));
    } catch (const std::bad_alloc&) {
      lacks_memory = true;
    }
  });
  if (lacks_memory) throw std::bad_alloc();
  for (int window = 0; window < num_windows; ++window) {
    Advance(std::span(inputs).subspan(window * kGates, kGates), state);
    float sum = output_bias_;
    for (int i = 0; i < kNumHidden; ++i) {
      sum += output_[i] * std::max(0.0f, state->hidden[i]);
    }
    probabilities->push_back(Sigmoid(sum));
  }
}

void VoiceActivityStream::Push(std::span<const float> samples,
                               std::vector<float>* probabilities) {
  samples_.insert(samples_.end(), samples.begin(), samples.end());
  const size_t num_windows = (samples_.size() - kContext) / kWindow;
  if (num_windows == 0) return;
  const size_t size = num_windows * kWindow;
  network_.AppendProbabilities(std::span(samples_).first(kContext + size),
                               &state_, pool_, probabilities);
  samples_.erase(samples_.begin(),
                 samples_.begin() + static_cast<ptrdiff_t>(size));
}

void VoiceActivityStream::Finish(std::vector<float>* probabilities) {
  if (samples_.size() == kContext) return;
  samples_.resize(kContext + kWindow, 0.0f);
  network_.AppendProbabilities(samples_, &state_, pool_, probabilities);
  samples_.resize(kContext);
}

}  // namespace espalier
