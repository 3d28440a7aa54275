#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "espalier/transcriber.h"
#include "speech/speech_chunks.h"
#include "speech/voice_activity.h"
#include "tests/scratch_directory.h"
#include "tests/speech/signals.h"
#include "tests/speech/tone_network.h"
#include "tests/speech/wav_file.h"
#include "tests/status_matchers.h"
#include "tests/whisper_directory.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TranscriberVadTest : public ::testing::Test {
 protected:
  TranscriberVadTest() {
    auto loaded = Transcriber::Load(model_.path(), {.num_threads = 2});
    EXPECT_OK(loaded.status());
    transcriber_ = std::make_unique<Transcriber>(*std::move(loaded));
    files_.Write("vad.safetensors", SafetensorsOf(ToneTensors()));
    auto network = LoadVoiceActivity(files_.path("vad.safetensors"));
    EXPECT_OK(network.status());
    options_.temperature = {0, 1};
    options_.num_beams = 3;
    options_.thresholds.no_speech.reset();
    options_.vad_options = {.min_silence_duration_ms = 500,
                            .speech_pad_ms = 100};
    options_.voice_activity = *network;
  }

  std::string Write(const std::string& name,
                    const std::vector<float>& samples) const {
    const std::string path = files_.path(name);
    WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_FLOAT, kSpeechRate, 1, samples);
    return path;
  }

  static std::vector<float> Join(const std::vector<std::vector<float>>& parts) {
    std::vector<float> all;
    for (const std::vector<float>& part : parts) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  static std::vector<float> Silence(double seconds) {
    return Noise(static_cast<int>(seconds * kSpeechRate), 0.001F);
  }
  static std::vector<float> Tone(double seconds) {
    return Sine(1000, kSpeechRate, static_cast<int>(seconds * kSpeechRate),
                0.5);
  }

  // Returns the spans of the chunks that an audio has.
  std::vector<std::vector<SpeechSpan>> ChunksOf(
      const std::vector<float>& samples) const {
    std::vector<float> probabilities;
    VoiceActivityStream stream(*options_.voice_activity);
    stream.Push(samples, &probabilities);
    stream.Finish(&probabilities);
    std::vector<std::vector<SpeechSpan>> chunks;
    int64_t size = 0;  // the last one's
    for (const SpeechSpan& span :
         FindSpeech(probabilities, std::ssize(samples), options_.vad_options)) {
      size += span.end - span.first;
      if (chunks.empty() || size > kSmallWindow * 160) {
        chunks.emplace_back();
        size = span.end - span.first;
      }
      chunks.back().push_back(span);
    }
    return chunks;
  }
  static std::vector<float> SpeechOf(const std::vector<float>& samples,
                                     const std::vector<SpeechSpan>& spans) {
    std::vector<float> speech;
    for (const SpeechSpan& span : spans) {
      speech.insert(speech.end(), samples.begin() + span.first,
                    samples.begin() + span.end);
    }
    return speech;
  }

  const WhisperDirectory model_;
  const ScratchDirectory files_;
  std::unique_ptr<Transcriber> transcriber_;
  TranscribeOptions options_;
};

// The times of a word are those of its span of speech, and no word is in two.
TEST_F(TranscriberVadTest, WordsAreInTheSpansOfSpeech) {
  const std::vector<float> samples =
      Join({Silence(3), Tone(2.25), Silence(4.5), Tone(1.5), Silence(1)});
  std::vector<float> probabilities;
  VoiceActivityStream stream(*options_.voice_activity);
  stream.Push(samples, &probabilities);
  stream.Finish(&probabilities);
  const SpeechTimes times(
      FindSpeech(probabilities, std::ssize(samples), options_.vad_options));
  const std::vector<float> speech = SpeechOf(samples, times.spans());
  options_.word_timestamps = true;
  TranscribeOptions plain = options_;
  plain.voice_activity = nullptr;
  const auto expected =
      transcriber_->TranscribeFile(Write("speech.wav", speech), plain);
  ASSERT_OK(expected.status());
  const auto transcript =
      transcriber_->TranscribeFile(Write("whole.wav", samples), options_);
  ASSERT_OK(transcript.status());
  ASSERT_EQ(transcript->segments.size(), expected->segments.size());
  size_t num_words = 0;
  for (size_t i = 0; i < expected->segments.size(); ++i) {
    const auto& words = *transcript->segments[i].words;
    const auto& alone = *expected->segments[i].words;
    ASSERT_EQ(words.size(), alone.size());
    for (size_t j = 0; j < words.size(); ++j) {
      EXPECT_EQ(words[j].word, alone[j].word);
      const auto [start, end] = times.BothOf(alone[j].start, alone[j].end);
      EXPECT_NEAR(words[j].start, start, 0.006);
      EXPECT_NEAR(words[j].end, end, 0.006);
      EXPECT_NEAR(end - start, alone[j].end - alone[j].start, 1e-9);
      ++num_words;
    }
    if (words.empty()) continue;
    EXPECT_EQ(transcript->segments[i].start, words.front().start);
    EXPECT_EQ(transcript->segments[i].end, words.back().end);
  }
  EXPECT_GT(num_words, 0u);
  // Chunks have words, too, whatever their number at a time.
  std::vector<std::string> in_chunks;
  for (const int64_t batch_size : {1, 3}) {
    options_.batch_size = batch_size;
    const auto chunks =
        transcriber_->TranscribeFile(Write("whole.wav", samples), options_);
    ASSERT_OK(chunks.status());
    ASSERT_THAT(chunks->segments, Not(IsEmpty()));
    for (const TranscriptSegment& segment : chunks->segments) {
      EXPECT_TRUE(segment.words.has_value());
    }
    in_chunks.push_back(FormatTranscript(*chunks, TranscriptFormat::kJson));
  }
  EXPECT_EQ(in_chunks[0], in_chunks[1]);
}

// The speech is transcribed as a file of its own would be, and its times are
// those of the whole file.
TEST_F(TranscriberVadTest, SpeechAloneIsTranscribedWithTheAudiosTimes) {
  const std::vector<float> samples =
      Join({Silence(3), Tone(2.25), Silence(4.5), Tone(1.5), Silence(1)});
  const std::string whole = Write("whole.wav", samples);
  std::vector<float> probabilities;
  VoiceActivityStream stream(*options_.voice_activity);
  stream.Push(samples, &probabilities);
  stream.Finish(&probabilities);
  const SpeechTimes times(
      FindSpeech(probabilities, std::ssize(samples), options_.vad_options));
  ASSERT_EQ(times.spans().size(), 2u);
  const std::vector<float> speech = SpeechOf(samples, times.spans());

  TranscribeOptions plain = options_;
  plain.voice_activity = nullptr;
  const auto expected =
      transcriber_->TranscribeFile(Write("speech.wav", speech), plain);
  ASSERT_OK(expected.status());
  std::vector<TranscriptSegment> streamed;
  double seconds = 0;
  const auto transcript = transcriber_->TranscribeFile(
      whole, options_,
      [&](std::span<const TranscriptSegment> segments,
          const TranscribeProgress& progress) {
        streamed.insert(streamed.end(), segments.begin(), segments.end());
        EXPECT_LE(seconds, progress.seconds);
        seconds = progress.seconds;
        EXPECT_DOUBLE_EQ(progress.duration, 12.25);
        return true;
      });
  ASSERT_OK(transcript.status());
  EXPECT_DOUBLE_EQ(transcript->duration, 12.25);
  EXPECT_DOUBLE_EQ(seconds, 12.25);
  EXPECT_EQ(transcript->text, expected->text);
  ASSERT_EQ(transcript->segments.size(), expected->segments.size());
  ASSERT_EQ(streamed.size(), expected->segments.size());
  ASSERT_THAT(streamed, Not(IsEmpty()));
  for (size_t i = 0; i < streamed.size(); ++i) {
    const TranscriptSegment& segment = transcript->segments[i];
    EXPECT_EQ(segment.tokens, expected->segments[i].tokens);
    EXPECT_NEAR(segment.start, times.BeginOf(expected->segments[i].start),
                0.005);
    EXPECT_NEAR(segment.end, times.EndOf(expected->segments[i].end), 0.005);
    EXPECT_EQ(segment.start, streamed[i].start);
    EXPECT_EQ(segment.end, streamed[i].end);
    // Never in the silence, but for its padding.
    EXPECT_TRUE(segment.start >= 2.8 && segment.end <= 11.4);
    EXPECT_FALSE(segment.start > 5.4 && segment.start < 9.6);
  }
  ASSERT_EQ(transcript->windows.size(), expected->windows.size());
  EXPECT_NEAR(transcript->windows.front().start, 2.9, 0.05);
  EXPECT_NEAR(transcript->windows.back().end, 11.35, 0.05);
}

// Each chunk is transcribed as a file of its own would be, so the number at a
// time does not matter.
TEST_F(TranscriberVadTest, ChunksAreTranscribedIndependently) {
  std::vector<float> samples;
  for (int i = 0; i < 6; ++i) {
    const double seconds = 0.25 + 0.15 * i;
    samples = Join({samples, Silence(0.7 + 0.1 * i), Tone(seconds),
                    Noise(static_cast<int>(2000 * seconds), 0.2F)});
  }
  const std::string whole = Write("whole.wav", Join({samples, Silence(1)}));
  options_.temperature = {0, 0.5, 1};
  options_.thresholds.logprob = -1.1;
  options_.num_alternatives = 2;
  options_.initial_prompt = "Hello world";
  options_.vad_options = {.min_silence_duration_ms = 160, .speech_pad_ms = 50};
  const std::vector<float> all = Join({samples, Silence(1)});
  const std::vector<std::vector<SpeechSpan>> chunks = ChunksOf(all);
  ASSERT_GE(chunks.size(), 4u);

  options_.batch_size = 1;
  const auto expected = transcriber_->TranscribeFile(whole, options_);
  ASSERT_OK(expected.status());
  ASSERT_THAT(expected->segments, Not(IsEmpty()));
  EXPECT_DOUBLE_EQ(expected->duration, static_cast<double>(all.size()) / 16000);

  // Alone.
  TranscribeOptions plain = options_;
  plain.batch_size.reset();
  plain.voice_activity = nullptr;
  plain.language = expected->language;
  std::string text;
  size_t segment = 0;
  int64_t before = 0;
  for (const std::vector<SpeechSpan>& spans : chunks) {
    const std::vector<float> speech = SpeechOf(all, spans);
    plain.seed = static_cast<uint64_t>(before / 160 * 3);
    before += std::ssize(speech);
    const auto alone =
        transcriber_->TranscribeFile(Write("chunk.wav", speech), plain);
    ASSERT_OK(alone.status());
    const SpeechTimes times(spans);
    for (const TranscriptSegment& other : alone->segments) {
      ASSERT_LT(segment, expected->segments.size());
      const TranscriptSegment& one = expected->segments[segment];
      EXPECT_EQ(one.id, static_cast<int64_t>(segment));
      EXPECT_EQ(one.tokens, other.tokens);
      EXPECT_NEAR(one.start, times.BeginOf(other.start), 0.005);
      EXPECT_NEAR(one.end, times.EndOf(other.end), 0.005);
      ++segment;
    }
    text += alone->text;
  }
  EXPECT_EQ(segment, expected->segments.size());
  EXPECT_EQ(expected->text, text);

  for (const int64_t batch_size : {2, 3, 256}) {
    for (const bool eager : {false, true}) {
      options_.batch_size = batch_size;
      options_.eager_fallback = eager;
      std::vector<int64_t> streamed;
      double seconds = 0;
      const auto transcript = transcriber_->TranscribeFile(
          whole, options_,
          [&](std::span<const TranscriptSegment> segments,
              const TranscribeProgress& progress) {
            for (const auto& one : segments) streamed.push_back(one.id);
            EXPECT_LT(seconds, progress.seconds);
            EXPECT_DOUBLE_EQ(progress.duration, expected->duration);
            seconds = progress.seconds;
            return true;
          });
      ASSERT_OK(transcript.status());
      EXPECT_EQ(FormatTranscript(*transcript, TranscriptFormat::kJson),
                FormatTranscript(*expected, TranscriptFormat::kJson));
      EXPECT_EQ(streamed.size(), expected->segments.size());
      EXPECT_TRUE(std::ranges::is_sorted(streamed));
      EXPECT_DOUBLE_EQ(seconds, expected->duration);
    }
  }
}

// A chunk in which no language is likely enough has that of the chunk before,
// however many are transcribed at a time.
TEST_F(TranscriberVadTest, ChunksHaveTheirLanguages) {
  std::vector<float> samples;
  for (int i = 0; i < 8; ++i) {
    std::vector<float> speech = Tone(0.5 + 0.05 * i);
    const std::vector<float> other =
        Sine(200 + 450 * (i * 5 % 8), kSpeechRate,
             static_cast<int>(speech.size()), 0.05 * i);
    for (size_t j = 0; j < speech.size(); ++j) speech[j] += other[j];
    samples = Join({samples, Silence(0.7), speech});
  }
  samples = Join({samples, Silence(1)});
  const std::string path = Write("whole.wav", samples);
  options_.vad_options = {.min_silence_duration_ms = 160, .speech_pad_ms = 50};
  options_.temperature = {0};
  options_.multilingual = true;
  const std::vector<std::vector<SpeechSpan>> chunks = ChunksOf(samples);
  ASSERT_GE(chunks.size(), 6u);
  const auto transcribe = [&](const std::string& file,
                              const TranscribeOptions& options) {
    auto transcript = transcriber_->TranscribeFile(file, options);
    EXPECT_OK(transcript.status());
    return *std::move(transcript);
  };
  // A chunk alone.
  TranscribeOptions alone = options_;
  alone.voice_activity = nullptr;
  alone.multilingual = false;
  alone.without_timestamps = true;
  int num_kept = 0;
  std::set<std::string> languages;
  for (const double threshold : {0.0, 0.15, 1.0}) {
    options_.language_detection_threshold = threshold;
    for (const bool without_timestamps : {false, true}) {
      options_.without_timestamps = without_timestamps;
      options_.batch_size = 1;
      const Transcript expected = transcribe(path, options_);
      for (const int64_t batch_size : {2, 3, 256}) {
        options_.batch_size = batch_size;
        EXPECT_EQ(FormatTranscript(transcribe(path, options_),
                                   TranscriptFormat::kJson),
                  FormatTranscript(expected, TranscriptFormat::kJson));
      }
      // With times a chunk may be several windows.
      if (!without_timestamps) continue;
      std::string language = expected.language;
      auto segment = expected.segments.begin();
      for (const std::vector<SpeechSpan>& spans : chunks) {
        const std::string chunk = Write("chunk.wav", SpeechOf(samples, spans));
        alone.language = "";
        const Transcript detected = transcribe(chunk, alone);
        const bool is_sure = detected.language_probability > threshold;
        num_kept += !is_sure && detected.language != language;
        if (is_sure) language = detected.language;
        languages.insert(language);
        alone.language = language;
        for (const TranscriptSegment& one : transcribe(chunk, alone).segments) {
          ASSERT_NE(segment, expected.segments.end());
          EXPECT_EQ(segment->language, language);
          EXPECT_EQ(segment->tokens, one.tokens);
          ++segment;
        }
      }
      EXPECT_EQ(segment, expected.segments.end());
    }
  }
  EXPECT_GT(num_kept, 0);
  EXPECT_GE(languages.size(), 2u);
}

TEST_F(TranscriberVadTest, ChunksEndWhenTheCallerSays) {
  const std::string path =
      Write("tones.wav", Join({Tone(0.9), Silence(1), Tone(0.9), Silence(1),
                               Tone(0.9), Silence(1), Tone(0.9), Silence(1)}));
  options_.batch_size = 3;
  options_.vad_options = VadOptions::ForChunks();
  int num_calls = 0;
  EXPECT_THAT(
      transcriber_
          ->TranscribeFile(path, options_,
                           [&](auto, const auto&) { return ++num_calls < 2; })
          .status(),
      StatusIs(absl::StatusCode::kCancelled, HasSubstr("caller")));
  EXPECT_EQ(num_calls, 2);
  std::stop_source stop;
  EXPECT_THAT(transcriber_
                  ->TranscribeFile(path, options_,
                                   [&](auto, const auto&) {
                                     stop.request_stop();
                                     return true;
                                   },
                                   {.stop = stop.get_token()})
                  .status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("caller")));
  EXPECT_THAT(transcriber_
                  ->TranscribeFile(path, options_, nullptr,
                                   {.timeout = absl::Milliseconds(1)})
                  .status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  EXPECT_EQ(transcriber_->generator()->Stats().num_running, 0);
  EXPECT_OK(transcriber_->TranscribeFile(path, options_).status());
}

TEST_F(TranscriberVadTest, SilenceHasNoText) {
  const auto transcript =
      transcriber_->TranscribeFile(Write("silence.wav", Silence(4)), options_);
  ASSERT_OK(transcript.status());
  EXPECT_THAT(transcript->segments, IsEmpty());
  EXPECT_EQ(transcript->text, "");
  EXPECT_DOUBLE_EQ(transcript->duration, 4);
}

TEST_F(TranscriberVadTest, WhatDoesNotFitIsAnErrorThatNamesIt) {
  const std::string path = Write("tone.wav", Tone(2));
  const auto error = [&](const TranscribeOptions& options) {
    return std::string(
        transcriber_->TranscribeFile(path, options).status().message());
  };
  TranscribeOptions options = options_;
  options.clip_timestamps = {0, 1};
  EXPECT_THAT(error(options), HasSubstr("clip_timestamps must be empty with "
                                        "vad_model, got 2 times"));
  options = options_;
  options.vad_options.threshold = 2;
  EXPECT_THAT(error(options),
              HasSubstr("vad_threshold must be in [0, 1], got 2"));

  const auto load_error = [&](const std::string& name) {
    return std::string(LoadVoiceActivity(files_.path(name)).status().message());
  };
  EXPECT_THAT(load_error("none"), HasSubstr(files_.path("none")));
  EXPECT_THAT(load_error("silero_vad.onnx"),
              HasSubstr("got .onnx: take silero_vad_16k.safetensors"));
  auto tensors = ToneTensors();
  tensors.erase("conv3.weight");
  files_.Write("short", SafetensorsOf(tensors));
  EXPECT_THAT(load_error("short"), AllOf(HasSubstr(files_.path("short")),
                                         HasSubstr("\"conv3.weight\" is "
                                                   "missing")));
  EXPECT_THAT(
      std::string(LoadVoiceActivity(model_.path() + "/model.safetensors")
                      .status()
                      .message()),
      HasSubstr("is missing"));
}

}  // namespace
}  // namespace espalier
