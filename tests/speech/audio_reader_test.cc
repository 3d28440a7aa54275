#include "speech/audio_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "tests/few_cases.h"
#include "tests/scratch_directory.h"
#include "tests/speech/signals.h"
#include "tests/speech/wav_file.h"
#include "tests/status_matchers.h"

// libsndfile 1.2.0 does not free what libvorbis allocates for a broken Ogg
// file.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libvorbis";
}

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::IsOk;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::Sine;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kDay = absl::Hours(24);

absl::StatusOr<std::vector<float>> ReadFileAudio(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AudioReader> reader,
                   AudioReader::Open(path));
  return ReadAllAudio(*reader, kDay);
}

absl::StatusOr<std::vector<float>> ReadBytes(const std::string& bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AudioReader> reader,
                   AudioReader::OpenBytes(bytes, "upload"));
  return ReadAllAudio(*reader, kDay);
}

TEST(AudioReaderTest, GivesWavOf16BitsAt16KHzExactly) {
  std::string bytes = WavHeaderBytes({.data_bytes = 8});
  for (const int16_t value : {0, 1, -32768, 32767}) AppendBytes(value, bytes);
  const absl::StatusOr<std::vector<float>> samples = ReadBytes(bytes);
  ASSERT_OK(samples);
  EXPECT_THAT(*samples,
              ::testing::ElementsAre(0, 1 / 32768.0f, -1, 32767 / 32768.0f));
}

TEST(AudioReaderTest, SaysWhatTheFileIs) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("a.flac");
  WriteAudio(path, SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 44100, 2,
             std::vector<float>(200));
  const auto reader = AudioReader::Open(path);
  ASSERT_OK(reader);
  EXPECT_THAT((*reader)->format().name, HasSubstr("FLAC"));
  EXPECT_EQ((*reader)->format().sample_rate, 44100);
  EXPECT_EQ((*reader)->format().num_channels, 2);
  EXPECT_DOUBLE_EQ((*reader)->format().duration, 100.0 / 44100);
}

TEST(AudioReaderTest, DurationIsThatOfTheHeader) {
  const auto duration = [](const std::string& bytes) {
    const auto reader = AudioReader::OpenBytes(bytes, "a");
    return reader.ok() ? (*reader)->format().duration : -1;
  };
  std::string wav = WavHeaderBytes({.data_bytes = 32000});
  wav.resize(wav.size() + 32000);
  EXPECT_DOUBLE_EQ(duration(wav), 1);
  // A stream, whose header promises what never came.
  wav.replace(40, 4, "\xff\xff\xff\xff");
  EXPECT_DOUBLE_EQ(duration(wav), 1);
  const auto samples = std::make_shared<std::vector<float>>(8000);
  EXPECT_DOUBLE_EQ(AudioReader::OpenSamples(samples, "a")->format().duration,
                   0.5);

  const ScratchDirectory scratch;
  const std::string path = scratch.path("a.flac");
  WriteAudio(path, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 1,
             std::vector<float>(16000));
  std::string flac = *ReadFile(path, 1 << 20);
  EXPECT_DOUBLE_EQ(duration(flac), 1);
  // As of a stream: no number of samples, which is the lower half of a byte and
  // four more.
  flac[21] = static_cast<char>(flac[21] & 0xF0);
  flac.replace(22, 4, 4, '\0');
  EXPECT_EQ(duration(flac), 0);
}

// Lossy formats come near, and may begin or end some samples off.
TEST(AudioReaderTest, ReadsFormatsOfLibsndfile) {
  struct Case {
    int format;
    int sample_rate;
    double tolerance;
  };
  const ScratchDirectory scratch;
  for (const Case& c : std::vector<Case>{
           {SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 16000, 1e-2},
           {SF_FORMAT_WAV | SF_FORMAT_PCM_24, 48000, 1e-4},
           {SF_FORMAT_WAV | SF_FORMAT_FLOAT, 44100, 1e-4},
           {SF_FORMAT_WAV | SF_FORMAT_DOUBLE, 8000, 1e-4},
           {SF_FORMAT_WAV | SF_FORMAT_ULAW, 8000, 2e-2},
           {SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 22050, 1e-4},
           {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 96000, 1e-4},
           {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 5e-2},
           {SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 5e-2},
           {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 5e-2}}) {
    const std::string path = scratch.path("audio");
    WriteAudio(path, c.format, c.sample_rate, 1,
               Sine(440, c.sample_rate, c.sample_rate, 0.5));
    const auto reader = AudioReader::Open(path);
    ASSERT_THAT(reader, IsOk()) << std::hex << c.format;
    EXPECT_NEAR((*reader)->format().duration, 1, 0.1) << std::hex << c.format;
    const absl::StatusOr<std::vector<float>> samples = ReadFileAudio(path);
    ASSERT_THAT(samples, IsOk()) << std::hex << c.format;
    EXPECT_NEAR(static_cast<double>(samples->size()), 16000, 1500);
    // By its power, which a shift does not change.
    double power = 0;
    for (size_t i = 2000; i < 14000; ++i)
      power += (*samples)[i] * (*samples)[i];
    EXPECT_NEAR(std::sqrt(2 * power / 12000), 0.5, c.tolerance)
        << std::hex << c.format;
  }
}

TEST(AudioReaderTest, MixesChannelsDownToTheirMean) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("a.wav");
  for (const int num_channels : {1, 2, 6, 64}) {
    std::mt19937 random(num_channels);
    std::uniform_real_distribution<float> values(-1, 1);
    std::vector<float> frames(size_t{20000} * num_channels);
    for (float& value : frames) value = values(random);
    WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_FLOAT, 16000, num_channels,
               frames);
    std::vector<float> means;
    for (int frame = 0; frame < 20000; ++frame) {
      double sum = 0;
      for (int i = 0; i < num_channels; ++i) {
        sum += frames[frame * num_channels + i];
      }
      means.push_back(static_cast<float>(sum / num_channels));
    }
    const absl::StatusOr<std::vector<float>> samples = ReadFileAudio(path);
    ASSERT_OK(samples);
    EXPECT_EQ(*samples, means) << num_channels << " channels";
  }
}

TEST(AudioReaderTest, ReadsSamplesInRunsOfAnySize) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("a.wav");
  WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_FLOAT, 44100, 2,
             Sine(300, 44100, 60000, 0.5));
  const absl::StatusOr<std::vector<float>> whole = ReadFileAudio(path);
  ASSERT_OK(whole);
  const auto reader = AudioReader::Open(path);
  ASSERT_OK(reader);
  std::vector<float> parts;
  std::vector<float> part(777);
  while (true) {
    const absl::StatusOr<size_t> count = (*reader)->Read(part);
    ASSERT_OK(count);
    parts.insert(parts.end(), part.begin(), part.begin() + *count);
    if (*count < part.size()) break;
  }
  EXPECT_EQ(parts, *whole);
  EXPECT_EQ((*reader)->Read(part).value(), 0u);
}

TEST(AudioReaderTest, ClipsWhatIsBeyondOne) {
  std::string bytes =
      WavHeaderBytes({.format = 3, .bits = 32, .data_bytes = 12});
  for (const float value : {1.5f, -3e38f, 0.25f}) AppendBytes(value, bytes);
  const absl::StatusOr<std::vector<float>> samples = ReadBytes(bytes);
  ASSERT_OK(samples);
  EXPECT_THAT(*samples, ::testing::ElementsAre(1, -1, 0.25f));
}

TEST(AudioReaderTest, ResamplesTheLargestFloats) {
  std::string bytes = WavHeaderBytes({.format = 3,
                                      .num_channels = 2,
                                      .sample_rate = 48000,
                                      .bits = 32,
                                      .data_bytes = 16000});
  for (int i = 0; i < 2000; ++i) {
    for (int channel = 0; channel < 2; ++channel) {
      AppendBytes(i % 7 < 3 ? 3e38f : -3e38f, bytes);
    }
  }
  const absl::StatusOr<std::vector<float>> samples = ReadBytes(bytes);
  ASSERT_OK(samples);
  EXPECT_THAT(*samples, ::testing::Each(::testing::AllOf(::testing::Ge(-1.0f),
                                                         ::testing::Le(1.0f))));
}

// A step overshoots where its highest frequencies are taken away.
TEST(AudioReaderTest, ClipsWhatResamplingPutsBeyondOne) {
  std::string bytes =
      WavHeaderBytes({.sample_rate = 48000, .data_bytes = 96000});
  for (int i = 0; i < 48000; ++i) {
    AppendBytes<int16_t>(i / 1000 % 2 == 0 ? 32767 : -32768, bytes);
  }
  const absl::StatusOr<std::vector<float>> samples = ReadBytes(bytes);
  ASSERT_OK(samples);
  EXPECT_EQ(*std::max_element(samples->begin(), samples->end()), 1);
  EXPECT_EQ(*std::min_element(samples->begin(), samples->end()), -1);
}

TEST(AudioReaderTest, RefusesNanAndInfinityByTheirTime) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    std::string bytes =
        WavHeaderBytes({.format = 3, .bits = 32, .data_bytes = 32000 * 4});
    for (int i = 0; i < 32000; ++i) {
      AppendBytes(i == 8000 ? bad : 0.5f, bytes);
    }
    EXPECT_THAT(
        ReadBytes(bytes),
        StatusIs(kInvalid, AllOf(HasSubstr("upload has a sample that is "),
                                 HasSubstr("after 0.5 s"))));
  }
}

TEST(AudioReaderTest, FailsAgainAfterAnError) {
  std::string bytes =
      WavHeaderBytes({.format = 3, .bits = 32, .data_bytes = 4});
  AppendBytes(std::numeric_limits<float>::quiet_NaN(), bytes);
  const auto reader = AudioReader::OpenBytes(bytes, "upload");
  ASSERT_OK(reader);
  std::vector<float> samples(10);
  EXPECT_THAT((*reader)->Read(samples), StatusIs(kInvalid, HasSubstr("nan")));
  EXPECT_THAT((*reader)->Read(samples), StatusIs(kInvalid, HasSubstr("nan")));
}

TEST(AudioReaderTest, RefusesWhatIsNoAudio) {
  EXPECT_THAT(ReadBytes(""),
              StatusIs(kInvalid, HasSubstr("upload is empty: no audio")));
  EXPECT_THAT(
      ReadBytes("Dear sir or madam, I am no audio at all."),
      StatusIs(kInvalid, HasSubstr("upload: libsndfile cannot read it")));
  EXPECT_THAT(
      ReadBytes(std::string(100'000, '\0')),
      StatusIs(kInvalid, HasSubstr("upload: libsndfile cannot read it")));
}

TEST(AudioReaderTest, SaysHowToReadOfVideo) {
  const std::string rest(100, '\0');
  const std::pair<std::string, std::string> cases[] = {
      {std::string("\0\0\0\x20", 4) + "ftypisom", "MP4"},
      {"\x1a\x45\xdf\xa3", "Matroska or WebM"},
      {"RIFF????AVI LIST", "AVI"},
      {"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "ASF"},
      {"FLV\x01", "FLV"},
      {"\xff\xf1\x50\x80", "AAC"},
      {"\xff\xf8\x50\x80", "AAC"}};
  for (const auto& [bytes, name] : cases) {
    EXPECT_THAT(
        ReadBytes(bytes + rest),
        StatusIs(kInvalid, HasSubstr(Concat("upload is ", name,
                                            ", which is not read: make audio "
                                            "of it first, as with ffmpeg"))));
  }
}

TEST(AudioReaderTest, NamesFilesThatCannotBeRead) {
  const ScratchDirectory scratch;
  EXPECT_THAT(ReadFileAudio(scratch.path("none.wav")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.wav")));
  EXPECT_THAT(ReadFileAudio(scratch.path()),
              StatusIs(kInvalid, HasSubstr(scratch.path())));
  EXPECT_THAT(ReadFileAudio(scratch.Write("empty.wav", "")),
              StatusIs(kInvalid, HasSubstr("empty.wav is empty")));
}

TEST(AudioReaderTest, RefusesSampleRatesOutOfRange) {
  for (const uint32_t rate : {1u, 999u, 768'001u, 2'000'000'000u}) {
    std::string bytes =
        WavHeaderBytes({.sample_rate = rate, .data_bytes = 200});
    bytes.append(200, '\0');
    EXPECT_THAT(ReadBytes(bytes), StatusIs(kInvalid, HasSubstr("upload")))
        << rate;
  }
  std::string bytes = WavHeaderBytes({.sample_rate = 1, .data_bytes = 200});
  bytes.append(200, '\0');
  EXPECT_THAT(ReadBytes(bytes),
              StatusIs(kInvalid, HasSubstr("upload has 1 samples a second; "
                                           "from 1000 to 768000 are read")));
}

TEST(AudioReaderTest, ReadsTheHighestAndTheLowestSampleRate) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path("a.wav");
  for (const int rate : {1000, 768'000}) {
    WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_PCM_16, rate, 1,
               Sine(100, rate, rate, 0.5));
    const absl::StatusOr<std::vector<float>> samples = ReadFileAudio(path);
    ASSERT_OK(samples);
    EXPECT_EQ(samples->size(), 16000u);
    EXPECT_NEAR((*samples)[8040], 0.5, 1e-3) << rate;
  }
}

TEST(AudioReaderTest, ReadsAWavFileThatWasCutToItsEnd) {
  for (const uint32_t promised : {100'000u, 0xFFFFFFFFu, 0x7FFFFFF0u}) {
    std::string bytes = WavHeaderBytes({.data_bytes = promised});
    for (int i = 0; i < 500; ++i) AppendBytes<int16_t>(1000, bytes);
    const absl::StatusOr<std::vector<float>> samples = ReadBytes(bytes);
    ASSERT_THAT(samples, IsOk()) << promised;
    EXPECT_EQ(*samples, std::vector<float>(500, 1000 / 32768.0f)) << promised;
  }
}

TEST(AudioReaderTest, OfAHeaderWithoutSamplesIsEmpty) {
  const absl::StatusOr<std::vector<float>> samples =
      ReadBytes(WavHeaderBytes({}));
  ASSERT_OK(samples);
  EXPECT_THAT(*samples, IsEmpty());
}

// Files of each format, cut anywhere and with bytes changed: samples in
// [-1, 1] or an error that names the file, in time and without other harm.
TEST(AudioReaderTest, SurvivesFilesThatAreCutOrChanged) {
  const ScratchDirectory scratch;
  std::mt19937 random(1);
  for (const int format :
       {SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_WAV | SF_FORMAT_FLOAT,
        SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, SF_FORMAT_AIFF | SF_FORMAT_PCM_16,
        SF_FORMAT_FLAC | SF_FORMAT_PCM_16, SF_FORMAT_OGG | SF_FORMAT_VORBIS,
        SF_FORMAT_OGG | SF_FORMAT_OPUS,
        SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III}) {
    const std::string path = scratch.path("audio");
    WriteAudio(path, format, 16000, 1, Sine(440, 16000, 8000, 0.5));
    const absl::StatusOr<std::string> whole = ReadFile(path, 1 << 20);
    ASSERT_OK(whole);
    for (int i = 0; i < 60; ++i) {
      std::string bytes = *whole;
      if (i % 2 == 0) bytes.resize(random() % bytes.size());
      // Mostly in the header, where it matters.
      for (int changes = i % 5; changes > 0 && !bytes.empty(); --changes) {
        const size_t end =
            i % 3 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 100);
        bytes[random() % end] = static_cast<char>(random());
      }
      const auto reader = AudioReader::OpenBytes(bytes, "upload");
      if (!reader.ok()) {
        EXPECT_THAT(reader, StatusIs(kInvalid, HasSubstr("upload")));
        continue;
      }
      const absl::StatusOr<std::vector<float>> samples =
          ReadAllAudio(**reader, absl::Minutes(10));
      if (!samples.ok()) {
        EXPECT_THAT(samples, StatusIs(kInvalid, HasSubstr("upload")));
        continue;
      }
      for (const float sample : *samples) {
        ASSERT_LE(std::abs(sample), 1.0f);
      }
    }
  }
}

// Only a block is read at once.
TEST(AudioReaderTest, ReadsAnHourInRuns) {
  const int num_minutes = Cases(60, 3);
  const ScratchDirectory scratch;
  const std::string path = scratch.path("a.flac");
  {
    SF_INFO info{};
    info.samplerate = 16000;
    info.channels = 1;
    info.format = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
    SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
    ASSERT_NE(file, nullptr);
    const std::vector<int16_t> zeros(16000 * 60);
    for (int minute = 0; minute < num_minutes; ++minute) {
      ASSERT_EQ(sf_write_short(file, zeros.data(), zeros.size()),
                static_cast<sf_count_t>(zeros.size()));
    }
    sf_close(file);
  }
  const auto reader = AudioReader::Open(path);
  ASSERT_OK(reader);
  std::vector<float> minute(16000 * 60);
  int64_t num_samples = 0;
  float largest = 0;
  while (true) {
    const absl::StatusOr<size_t> count = (*reader)->Read(minute);
    ASSERT_OK(count);
    if (*count == 0) break;
    num_samples += static_cast<int64_t>(*count);
    largest =
        std::max(largest, *std::max_element(minute.begin(), minute.end()));
  }
  EXPECT_EQ(num_samples, int64_t{16000} * 60 * num_minutes);
  EXPECT_EQ(largest, 0);

  const auto again = AudioReader::Open(path);
  ASSERT_OK(again);
  EXPECT_THAT(ReadAllAudio(**again, absl::Minutes(2)),
              StatusIs(kInvalid, HasSubstr(path + " is longer than 2m")));
}

TEST(ReadAllAudioTest, TakesAudioOfExactlyTheLimit) {
  std::string bytes = WavHeaderBytes({.data_bytes = 32000});
  bytes.append(32000, '\0');
  const auto fits = AudioReader::OpenBytes(bytes, "upload");
  ASSERT_OK(fits);
  EXPECT_EQ(ReadAllAudio(**fits, absl::Seconds(1)).value().size(), 16000u);
  const auto too_long = AudioReader::OpenBytes(bytes, "upload");
  ASSERT_OK(too_long);
  EXPECT_THAT(ReadAllAudio(**too_long, absl::Milliseconds(999)),
              StatusIs(kInvalid, HasSubstr("upload is longer than 999ms")));
}

}  // namespace
}  // namespace espalier
