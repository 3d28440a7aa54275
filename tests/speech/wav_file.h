// Files of audio, made by libsndfile, and by hand where it would not.
#pragma once

#include <sndfile.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"

namespace espalier {

// Writes frames [num_frames, num_channels] to a file of `format`, one of
// libsndfile's such as SF_FORMAT_WAV | SF_FORMAT_PCM_16.
inline void WriteAudio(const std::string& path, int format, int sample_rate,
                       int num_channels, const std::vector<float>& samples) {
  SF_INFO info{};
  info.samplerate = sample_rate;
  info.channels = num_channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  CHECK(file != nullptr) << sf_strerror(nullptr);
  const sf_count_t num_frames =
      static_cast<sf_count_t>(samples.size()) / num_channels;
  CHECK(sf_writef_float(file, samples.data(), num_frames) == num_frames);
  CHECK(sf_close(file) == 0);
}

template <typename T>
void AppendBytes(T value, std::string& bytes) {
  char buffer[sizeof(T)];
  std::memcpy(buffer, &value, sizeof(T));
  bytes.append(buffer, sizeof(T));
}

// The fields of a WAV file's header, for what no library would write.
struct WavHeader {
  uint16_t format = 1;  // 1 integers, 3 floats
  uint16_t num_channels = 1;
  uint32_t sample_rate = 16000;
  uint16_t bits = 16;
  uint32_t data_bytes = 0;
};

// Returns the 44 bytes of a header.
inline std::string WavHeaderBytes(const WavHeader& header) {
  std::string bytes = "RIFF";
  AppendBytes<uint32_t>(36 + header.data_bytes, bytes);
  bytes += "WAVEfmt ";
  AppendBytes<uint32_t>(16, bytes);
  AppendBytes(header.format, bytes);
  AppendBytes(header.num_channels, bytes);
  AppendBytes(header.sample_rate, bytes);
  const uint32_t frame = header.num_channels * header.bits / 8;
  AppendBytes<uint32_t>(header.sample_rate * frame, bytes);
  AppendBytes<uint16_t>(frame, bytes);
  AppendBytes(header.bits, bytes);
  bytes += "data";
  AppendBytes(header.data_bytes, bytes);
  return bytes;
}

}  // namespace espalier
