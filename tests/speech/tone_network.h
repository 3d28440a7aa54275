// A voice activity network that takes a loud tone of 1 kHz for speech: each
// window's probability depends on its first spectrum alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "speech/voice_activity.h"

namespace espalier::testing {

inline std::map<std::string, VoiceTensor> ToneTensors() {
  std::map<std::string, VoiceTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    int64_t size = 1;
    for (const int64_t n : shape) size *= n;
    VoiceTensor& tensor = tensors[name];
    tensor = {std::move(shape), std::vector<float>(size)};
    return &tensor.values;
  };
  std::vector<float>& stft = *add("stft_conv.weight", {258, 1, 256});
  for (int i = 0; i < 256; ++i) {
    const double angle = 2 * std::numbers::pi * 1000 * i / 16000;
    stft[i] = static_cast<float>(std::cos(angle));
    stft[129 * 256 + i] = static_cast<float>(std::sin(angle));
  }
  // The first channel, and its middle tap.
  (*add("conv1.weight", {128, 129, 3}))[1] = 1;
  (*add("conv2.weight", {64, 128, 3}))[1] = 1;
  (*add("conv3.weight", {64, 64, 3}))[1] = 1;
  (*add("conv4.weight", {128, 64, 3}))[1] = 1;
  add("conv1.bias", {128});
  add("conv2.bias", {64});
  add("conv3.bias", {64});
  add("conv4.bias", {128});
  // Gates: in and out open, nothing is remembered.
  (*add("lstm_cell.weight_ih", {512, 128}))[256 * 128] = 1;
  add("lstm_cell.weight_hh", {512, 128});
  std::vector<float>& gates = *add("lstm_cell.bias_ih", {512});
  gates[0] = 20;
  gates[128] = -20;
  gates[384] = 20;
  add("lstm_cell.bias_hh", {512});
  (*add("final_conv.weight", {1, 128, 1}))[0] = 20;
  (*add("final_conv.bias", {1}))[0] = -5;
  return tensors;
}

// Returns the bytes of a safetensors file.
inline std::string SafetensorsOf(
    const std::map<std::string, VoiceTensor>& tensors) {
  json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.resize(begin + tensor.values.size() * sizeof(float));
    std::memcpy(data.data() + begin, tensor.values.data(),
                tensor.values.size() * sizeof(float));
    header[name] = json::object{
        {"dtype", "F32"},
        {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
        {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = WriteJson(header);
  const uint64_t size = text.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file + text + data;
}

}  // namespace espalier::testing
