// A Transcriber with directories of CTranslate2: they say what those of
// transformers with the same weights do, to the last bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "espalier/transcriber.h"
#include "tests/ctranslate2_whisper.h"
#include "tests/scratch_directory.h"
#include "tests/speech/signals.h"
#include "tests/speech/wav_file.h"
#include "tests/status_matchers.h"
#include "tests/whisper_directory.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

// Returns all of a transcript with words; "" if there is an error.
std::string TranscribeNoise(const std::string& directory,
                            TranscribeOptions options = {}) {
  const ScratchDirectory files;
  WriteAudio(files.path("noise.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000,
             1, Noise(3 * 16000, 0.1F));
  auto transcriber = Transcriber::Load(directory, {.num_threads = 1});
  EXPECT_OK(transcriber);
  if (!transcriber.ok()) return "";
  options.num_beams = 3;
  options.temperature = {0};
  options.thresholds.no_speech.reset();
  options.word_timestamps = true;
  const auto transcript =
      transcriber->TranscribeFile(files.path("noise.wav"), options);
  EXPECT_OK(transcript);
  return transcript.ok()
             ? FormatTranscript(*transcript, TranscriptFormat::kJson)
             : "";
}

// Names the heads that CTranslate2Whisper does.
void NameHeads(const WhisperDirectory& model) {
  const std::string path = model.files().path("config.json");
  json::object config = *ReadConfigObject(path);
  config["alignment_heads"] = {{0, 1}};
  model.files().Write("config.json", WriteJson(config));
}

TEST(TranscriberCTranslate2Test, SaysWhatTransformersDirectoryDoes) {
  for (const bool is_multilingual : {true, false}) {
    const WhisperDirectory model({.is_multilingual = is_multilingual});
    NameHeads(model);
    CTranslate2Whisper converted(model.path());
    converted.Write();
    if (!is_multilingual) {
      // The small vocabulary does not tell.
      converted.files().Write("generation_config.json",
                              R"({"is_multilingual": false})");
    }
    const std::string expected = TranscribeNoise(model.path());
    EXPECT_THAT(expected, HasSubstr("\"words\""));
    EXPECT_EQ(TranscribeNoise(converted.files().path()), expected);
    if (!is_multilingual) continue;
    TranscribeOptions options;
    options.language = "de";
    options.task = SpeechTask::kTranslate;
    EXPECT_EQ(TranscribeNoise(converted.files().path(), options),
              TranscribeNoise(model.path(), options));
  }
}

// Numbers that both types hold: nothing is lost in either.
TEST(TranscriberCTranslate2Test, CodesAreTheWeightsThatTheyStandFor) {
  const WhisperDirectory model;
  CTranslate2Whisper codes(model.path()), numbers(model.path());
  for (const std::string name : {"encoder/conv1/weight", "encoder/conv2/weight",
                                 "encoder/layer_0/ffn/linear_0/weight",
                                 "decoder/layer_0/attention/linear_1/weight",
                                 "decoder/embeddings/weight"}) {
    CTranslate2Variable& variable = numbers.content().At(name);
    const uint32_t num_rows = variable.shape[0];
    const size_t size = variable.bytes.size() / sizeof(float);
    std::string code_bytes, scales;
    for (size_t i = 0; i < size; ++i) {
      const size_t row = i / (size / num_rows);
      const float scale = 64.0F + static_cast<float>(row % 64);
      if (i % (size / num_rows) == 0) scales += BytesOf(scale);
      float number;
      std::memcpy(&number, &variable.bytes[i * sizeof(float)], sizeof(number));
      const auto code = static_cast<int8_t>(
          std::clamp(std::nearbyint(number * scale), -127.0F, 127.0F));
      code_bytes += BytesOf(code);
      number = static_cast<float>(code) / scale;
      std::memcpy(&variable.bytes[i * sizeof(float)], &number, sizeof(number));
    }
    codes.content().At(name).type = 1;
    codes.content().At(name).bytes = code_bytes;
    codes.content().variables.push_back(
        {name + "_scale", {num_rows}, 0, scales});
  }
  const std::string expected = TranscribeNoise(numbers.Write());
  EXPECT_NE(expected, TranscribeNoise(model.path()));
  EXPECT_EQ(TranscribeNoise(codes.Write()), expected);
}

TEST(TranscriberCTranslate2Test, NeedsATokenizer) {
  const WhisperDirectory model;
  CTranslate2Whisper converted(model.path());
  converted.Write();
  std::filesystem::remove(converted.files().path("tokenizer.json"));
  EXPECT_THAT(
      Transcriber::Load(converted.files().path(), {.num_threads = 1}).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("put the model's tokenizer there")));
}

}  // namespace
}  // namespace espalier
