#include "speech/transcript_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/speech/whisper_fixture.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

Transcript ReferenceSegments(const json::value& files) {
  Transcript transcript;
  for (const json::value& line : files.at("segments").as_array()) {
    transcript.segments.push_back(
        {.start = line.at(0).to_number<double>(),
         .end = line.at(1).to_number<double>(),
         .text = std::string(line.at(2).as_string())});
  }
  return transcript;
}

TEST(TranscriptFormatsTest, AreThoseOfOpenai) {
  const json::value references = TranscriptReferences();
  const json::value& files = references.at("files");
  const Transcript transcript = ReferenceSegments(files);
  for (const TranscriptFormat format : kTranscriptFormats) {
    if (format == TranscriptFormat::kJson) continue;
    EXPECT_EQ(FormatTranscript(transcript, format),
              std::string(files.at(NameOf(format)).as_string()))
        << NameOf(format);
  }
}

TEST(TranscriptFormatsTest, JsonHasAllOfIt) {
  const Transcript transcript = {.text = " Ä.",
                                 .segments = {{.id = 0,
                                               .seek = 0,
                                               .start = 0.5,
                                               .end = 1.25,
                                               .text = " Ä.",
                                               .tokens = {7, 9},
                                               .temperature = 0.2,
                                               .avg_logprob = -0.25,
                                               .compression_ratio = 0.75,
                                               .no_speech_prob = 0.125}},
                                 .windows = {{.start = 0, .end = 30}},
                                 .language = "de",
                                 .language_probability = 0.5,
                                 .duration = 2};
  EXPECT_EQ(
      FormatTranscript(transcript, TranscriptFormat::kJson),
      R"({"text": " Ä.", "segments": [{"id": 0, "seek": 0, "start": 0.5, )"
      R"("end": 1.25, "text": " Ä.", "tokens": [7, 9], "temperature": 0.2, )"
      R"("avg_logprob": -0.25, "compression_ratio": 0.75, )"
      R"("no_speech_prob": 0.125}], "language": "de", )"
      R"("language_probability": 0.5, "duration": 2.0})"
      "\n");
  Transcript with = transcript;
  with.windows[0].alternatives.push_back(
      {.text = "a", .tokens = {1}, .score = -0.5, .avg_logprob = -0.25});
  const json::value value =
      *ParseJson(FormatTranscript(with, TranscriptFormat::kJson));
  EXPECT_EQ(WriteJson(value.at("windows").at(0).at("alternatives")),
            R"([{"text": "a", "tokens": [1], "score": -0.5, )"
            R"("avg_logprob": -0.25}])");
}

TEST(TranscriptFormatsTest, AreFoundByName) {
  for (const TranscriptFormat format : kTranscriptFormats) {
    EXPECT_EQ(FindTranscriptFormat(NameOf(format)), format);
  }
  EXPECT_EQ(FindTranscriptFormat("all"), std::nullopt);
  EXPECT_EQ(FindTranscriptFormat(""), std::nullopt);
}

}  // namespace
}  // namespace espalier
