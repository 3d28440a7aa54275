#include "espalier/transcriber.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/speech/signals.h"
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
using ::testing::StartsWith;

constexpr int kRate = 16000;

// Files of audio, and the model that hears them.
class TranscriberTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new WhisperDirectory(); }
  static void TearDownTestSuite() { delete model_; }

  static Transcriber Load(const GeneratorOptions& options = {.num_threads = 2},
                          const std::string& path = model_->path()) {
    auto transcriber = Transcriber::Load(path, options);
    EXPECT_OK(transcriber);
    return *std::move(transcriber);
  }

  // A tone that changes every second, in noise.
  std::string Audio(double seconds, int seed = 1) const {
    std::vector<float> samples =
        Noise(static_cast<int>(seconds * kRate) + seed, 0.02F);
    samples.resize(static_cast<size_t>(seconds * kRate));
    for (size_t i = 0; i < samples.size(); i += kRate) {
      const size_t size = std::min<size_t>(kRate, samples.size() - i);
      const std::vector<float> tone =
          Sine(150.0 * (1 + (i / kRate * 7 + seed) % 9), kRate,
               static_cast<int>(size), 0.3);
      for (size_t j = 0; j < size; ++j) samples[i + j] += tone[j];
    }
    const std::string path = files_.path(Concat("audio", seed, ".wav"));
    WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_PCM_16, kRate, 1, samples);
    return path;
  }

  static std::string Json(const Transcript& transcript) {
    return FormatTranscript(transcript, TranscriptFormat::kJson);
  }

  static WhisperDirectory* model_;
  const ScratchDirectory files_;
};
WhisperDirectory* TranscriberTest::model_ = nullptr;

// Short, with everything on: of language, fallbacks and alternatives.
TranscribeOptions Lively() {
  TranscribeOptions options;
  options.temperature = {0, 0.5, 1};
  options.num_beams = 3;
  options.best_of = 2;
  options.num_alternatives = 2;
  options.thresholds.no_speech.reset();
  return options;
}

TEST_F(TranscriberTest, SegmentsAreInTheAudioAndGoForward) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(7.35);
  for (const bool without_timestamps : {false, true}) {
    TranscribeOptions options = Lively();
    options.without_timestamps = without_timestamps;
    const auto transcript = transcriber.TranscribeFile(path, options);
    ASSERT_OK(transcript.status());
    EXPECT_DOUBLE_EQ(transcript->duration, 7.35);
    EXPECT_GE(transcript->windows.size(), 8u);
    ASSERT_THAT(transcript->segments, Not(IsEmpty()));
    int64_t id = 0;
    double before = 0;
    std::string text;
    for (const TranscriptSegment& segment : transcript->segments) {
      EXPECT_EQ(segment.id, id++);
      EXPECT_LE(before, segment.start);
      EXPECT_LE(segment.start, segment.end);
      EXPECT_LE(segment.end, 7.35 + 1e-9);
      EXPECT_THAT(segment.tokens, Not(IsEmpty()));
      EXPECT_GE(segment.no_speech_prob, 0);
      EXPECT_LE(segment.avg_logprob, 0);
      before = static_cast<double>(segment.seek) / 100;
      text += segment.text;
    }
    EXPECT_EQ(transcript->text, text);
  }
}

// Also while pages are taken away and given back, and whatever the pool's size.
TEST_F(TranscriberTest, ResultsDoNotDependOnWhatElseRuns) {
  const std::vector<std::string> paths = {Audio(4.2, 1), Audio(3.7, 2),
                                          Audio(5.1, 3)};
  std::vector<std::string> alone;
  {
    const Transcriber transcriber = Load();
    for (const std::string& path : paths) {
      const auto transcript = transcriber.TranscribeFile(path, Lively());
      ASSERT_OK(transcript.status());
      alone.push_back(Json(*transcript));
    }
  }
  const int64_t page_bytes = Load().generator()->description().page_bytes;
  for (const GeneratorOptions& options :
       {GeneratorOptions{.num_threads = 3, .page_size = 4},
        GeneratorOptions{.num_threads = 1,
        .kv_cache_bytes = 14 * page_bytes,
        .max_step_tokens = 8}}) {
    const Transcriber transcriber = Load(options);
    std::vector<std::string> together(paths.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < paths.size(); ++i) {
      threads.emplace_back([&, i] {
        const auto transcript = transcriber.TranscribeFile(paths[i], Lively());
        EXPECT_OK(transcript.status());
        if (transcript.ok()) together[i] = Json(*transcript);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(together, alone);
  }
}

TEST_F(TranscriberTest, TheEncoderReadsEachWindowOnce) {
  for (const bool multilingual : {false, true}) {
    const Transcriber transcriber = Load();
    TranscribeOptions options = Lively();
    options.multilingual = multilingual;
    const auto transcript = transcriber.TranscribeFile(Audio(6), options);
    ASSERT_OK(transcript.status());
    const GeneratorStats stats = transcriber.generator()->Stats();
    const auto num_windows = static_cast<int64_t>(transcript->windows.size());
    EXPECT_GT(stats.num_requests, 2 * num_windows);  // some were decoded again
    EXPECT_EQ(stats.num_queried_tokens - stats.num_cached_tokens,
              num_windows * kSmallWindow / 2);
  }
}

TEST_F(TranscriberTest, SamplesDependOnTheSeedAlone) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(3);
  TranscribeOptions options;
  options.language = "en";
  options.temperature = {0.8};
  options.thresholds = {{}, {}, {}};
  const auto transcribe = [&](uint64_t seed) {
    options.seed = seed;
    const auto transcript = transcriber.TranscribeFile(path, options);
    EXPECT_OK(transcript.status());
    return transcript->text;
  };
  const std::string first = transcribe(1);
  EXPECT_EQ(transcribe(1), first);
  EXPECT_NE(transcribe(2), first);
}

TEST_F(TranscriberTest, FallsBackUntilAWindowPasses) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(2.5);
  TranscribeOptions options;
  options.language = "en";
  options.temperature = {0, 0.4, 1};
  options.thresholds = {.compression_ratio = {}, .logprob = 1, .no_speech = {}};
  const auto failed = transcriber.TranscribeFile(path, options);
  ASSERT_OK(failed);
  for (const TranscriptWindow& window : failed->windows) {
    EXPECT_EQ(window.temperature, 1);
  }
  options.thresholds.logprob.reset();
  const auto passed = transcriber.TranscribeFile(path, options);
  ASSERT_OK(passed);
  for (const TranscriptWindow& window : passed->windows) {
    EXPECT_EQ(window.temperature, 0);
  }
  // Silence is skipped, and nothing falls back for it.
  options.thresholds = {.compression_ratio = {}, .logprob = 1, .no_speech = -1};
  const auto silent = transcriber.TranscribeFile(path, options);
  ASSERT_OK(silent);
  EXPECT_THAT(silent->segments, IsEmpty());
  for (const TranscriptWindow& window : silent->windows) {
    EXPECT_TRUE(window.is_silent);
    EXPECT_EQ(window.temperature, 0);
  }
}

TEST_F(TranscriberTest, TriesTogetherHaveTheSameResult) {
  const Transcriber transcriber = Load();
  int num_late = 0;
  for (int seed = 1; seed <= 3; ++seed) {
    const std::string path = Audio(4.5, seed);
    // Some windows pass at each temperature, some at none.
    for (const double logprob : {-1.3, -1.0, -0.7}) {
      TranscribeOptions options = Lively();
      options.temperature = {0, 0.3, 0.6, 1, 1.5};
      options.thresholds.logprob = logprob;
      options.seed = static_cast<uint64_t>(seed);
      const auto expected = transcriber.TranscribeFile(path, options);
      ASSERT_OK(expected.status());
      options.eager_fallback = true;
      const auto eager = transcriber.TranscribeFile(path, options);
      ASSERT_OK(eager.status());
      EXPECT_EQ(Json(*eager), Json(*expected));
      ASSERT_EQ(eager->windows.size(), expected->windows.size());
      for (size_t i = 0; i < eager->windows.size(); ++i) {
        EXPECT_EQ(eager->windows[i].temperature,
                  expected->windows[i].temperature);
        num_late += eager->windows[i].temperature > 0.3;
      }
    }
  }
  EXPECT_GT(num_late, 0);
  EXPECT_EQ(transcriber.generator()->Stats().num_running, 0);
}

TEST_F(TranscriberTest, LanguagesAreDetectedOrGiven) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(3);
  const auto detected = transcriber.TranscribeFile(path);
  ASSERT_OK(detected);
  EXPECT_GT(detected->language_probability, 0.01);
  EXPECT_LT(detected->language_probability, 1);
  // A given language has the same effect.
  TranscribeOptions options;
  options.language = detected->language;
  const auto given = transcriber.TranscribeFile(path, options);
  ASSERT_OK(given);
  EXPECT_EQ(given->language, detected->language);
  EXPECT_EQ(given->language_probability, 1);
  EXPECT_EQ(given->text, detected->text);
}

// If no window is sure; ties go to the language that was heard first.
TEST_F(TranscriberTest, TheLanguageOfMostWindowsIsTaken) {
  const Transcriber transcriber = Load();
  constexpr int kWindows = 3;
  int num_majorities = 0;
  int num_ties = 0;
  for (int seed = 1; seed <= 24; ++seed) {
    const std::string path = Audio(kWindows, seed);
    TranscribeOptions options = {.temperature = {0}, .num_beams = 1};
    std::vector<std::string> heard;
    for (int i = 0; i < kWindows; ++i) {
      options.clip_timestamps = {i + 0.0, i + 0.02};
      const auto window = transcriber.TranscribeFile(path, options);
      ASSERT_OK(window);
      heard.push_back(window->language);
    }
    options.clip_timestamps = {};
    options.language_detection_segments = kWindows;
    options.language_detection_threshold = 1;
    const auto voted = transcriber.TranscribeFile(path, options);
    ASSERT_OK(voted);
    const bool is_majority = heard[1] == heard[2] && heard[0] != heard[1];
    EXPECT_EQ(voted->language, heard[is_majority ? 1 : 0]);
    num_majorities += is_majority;
    num_ties += std::set(heard.begin(), heard.end()).size() == kWindows;
    // Windows that were listened to are heard again.
    options.language = voted->language;
    const auto given = transcriber.TranscribeFile(path, options);
    ASSERT_OK(given);
    EXPECT_EQ(given->text, voted->text);
  }
  EXPECT_GT(num_majorities, 0);
  EXPECT_GT(num_ties, 0);
}

// Each window is as it is alone in its language: its own if that is likely
// enough, and else that of the window before.
TEST_F(TranscriberTest, EachWindowHasItsLanguage) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(8.4);
  TranscribeOptions options = Lively();
  options.condition_on_previous_text = false;
  const auto transcribe = [&](const TranscribeOptions& asked) {
    auto transcript = transcriber.TranscribeFile(path, asked);
    EXPECT_OK(transcript.status());
    return *std::move(transcript);
  };
  int num_kept = 0;
  std::set<std::string> languages;
  for (const double threshold : {0.0, 0.15, 1.0}) {
    for (const std::string given : {"", "de"}) {
      options.language = given;
      options.multilingual = true;
      options.language_detection_threshold = threshold;
      const Transcript all = transcribe(options);
      EXPECT_EQ(all.language, given.empty() ? transcribe({}).language : given);
      ASSERT_GE(all.windows.size(), 9u);
      std::string language = all.language;
      auto segment = all.segments.begin();
      for (const TranscriptWindow& window : all.windows) {
        TranscribeOptions alone = options;
        alone.multilingual = false;
        alone.clip_timestamps = {window.start, window.end};
        alone.language = "";
        const Transcript detected = transcribe(alone);
        const bool is_sure = detected.language_probability > threshold;
        num_kept += !is_sure && detected.language != language;
        if (is_sure) language = detected.language;
        languages.insert(language);
        alone.language = language;
        for (const TranscriptSegment& expected : transcribe(alone).segments) {
          if (expected.seek != window.seek) break;  // the clip's rest
          ASSERT_NE(segment, all.segments.end());
          EXPECT_EQ(segment->language, language);
          EXPECT_EQ(segment->tokens, expected.tokens);
          EXPECT_EQ(segment->start, expected.start);
          EXPECT_EQ(segment->avg_logprob, expected.avg_logprob);
          EXPECT_EQ(expected.language, "");
          ++segment;
        }
      }
      EXPECT_EQ(segment, all.segments.end());
    }
  }
  EXPECT_GT(num_kept, 0);
  EXPECT_GE(languages.size(), 4u);
}

TEST_F(TranscriberTest, KeepsTheBestHypothesesOfAWindow) {
  const Transcriber transcriber = Load();
  TranscribeOptions options;
  options.language = "de";
  options.temperature = {0};
  options.thresholds = {{}, {}, {}};
  options.num_alternatives = 4;
  const auto transcript = transcriber.TranscribeFile(Audio(1.5), options);
  ASSERT_OK(transcript.status());
  for (const TranscriptWindow& window : transcript->windows) {
    ASSERT_EQ(window.alternatives.size(), 4u);
    std::set<std::vector<TokenId>> different;
    for (size_t i = 0; i < 4; ++i) {
      different.insert(window.alternatives[i].tokens);
      if (i > 0) {
        EXPECT_LE(window.alternatives[i].score,
                  window.alternatives[i - 1].score);
      }
    }
    EXPECT_EQ(different.size(), 4u);
  }
}

// The tokens that come first change what is written.
TEST_F(TranscriberTest, WindowsAreToldWhatCameBefore) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(3.5);
  TranscribeOptions plain;
  plain.language = "en";
  plain.temperature = {0};
  plain.thresholds = {{}, {}, {}};
  const auto text = [&](const std::function<void(TranscribeOptions&)>& change) {
    TranscribeOptions options = plain;
    change(options);
    const auto transcript = transcriber.TranscribeFile(path, options);
    EXPECT_OK(transcript.status());
    return transcript->text;
  };
  const std::string as_it_is = text([](auto&) {});
  EXPECT_NE(text([](auto& o) { o.condition_on_previous_text = false; }),
            as_it_is);
  EXPECT_NE(text([](auto& o) { o.initial_prompt = "Hello world"; }), as_it_is);
  EXPECT_NE(text([](auto& o) { o.hotwords = "world"; }), as_it_is);
  EXPECT_NE(text([](auto& o) { o.prefix = "Ask not"; }), as_it_is);
  EXPECT_NE(text([](auto& o) { o.task = SpeechTask::kTranslate; }), as_it_is);
  EXPECT_NE(text([](auto& o) { o.language = "de"; }), as_it_is);
  // A mark in a user's text is text.
  EXPECT_NE(text([](auto& o) { o.initial_prompt = "<|0.00|> <|en|> <|"; }),
            as_it_is);
  EXPECT_EQ(text([](auto& o) { o.initial_prompt = " \n"; }), as_it_is);
}

TEST_F(TranscriberTest, TranscribesClipsAlone) {
  const Transcriber transcriber = Load();
  TranscribeOptions options;
  options.language = "en";
  options.clip_timestamps = {1.5, 2.25, 3};
  const auto transcript = transcriber.TranscribeFile(Audio(4), options);
  ASSERT_OK(transcript.status());
  for (const TranscriptSegment& segment : transcript->segments) {
    EXPECT_TRUE((segment.start >= 1.5 && segment.end <= 2.25 + 1e-9) ||
                segment.start >= 3)
        << segment.start << " " << segment.end;
  }
  options.clip_timestamps = {9};
  const auto none = transcriber.TranscribeFile(Audio(4), options);
  ASSERT_OK(none);
  EXPECT_THAT(none->windows, IsEmpty());
  EXPECT_EQ(none->text, "");
}

TEST_F(TranscriberTest, ReportsEachWindowAndEndsWhenItIsTold) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(4.5);
  std::vector<TranscriptSegment> reported;
  double done = 0;
  const auto transcript = transcriber.TranscribeFile(
      path, {}, [&](auto segments, const TranscribeProgress& progress) {
        reported.insert(reported.end(), segments.begin(), segments.end());
        EXPECT_GT(progress.seconds, done);
        EXPECT_EQ(progress.duration, 4.5);
        done = progress.seconds;
        return true;
      });
  ASSERT_OK(transcript.status());
  EXPECT_EQ(done, 4.5);
  ASSERT_EQ(reported.size(), transcript->segments.size());
  for (size_t i = 0; i < reported.size(); ++i) {
    EXPECT_EQ(reported[i].tokens, transcript->segments[i].tokens);
  }
  int num_windows = 0;
  EXPECT_THAT(
      transcriber
          .TranscribeFile(path, {},
                          [&](auto, const auto&) { return ++num_windows < 2; })
          .status(),
      StatusIs(absl::StatusCode::kCancelled, HasSubstr("ended")));
  EXPECT_EQ(num_windows, 2);
  std::stop_source stop;
  EXPECT_THAT(transcriber
                  .TranscribeFile(path, {},
                                  [&](auto, const auto&) {
                                    stop.request_stop();
                                    return true;
                                  },
                                  {.stop = stop.get_token()})
                  .status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
  EXPECT_THAT(
      transcriber
          .TranscribeFile(path, {}, nullptr, {.timeout = absl::ZeroDuration()})
          .status(),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
}

// Reads samples, and asks for a stop at the read of that number.
class StoppingReader : public AudioReader {
 public:
  StoppingReader(int* num_reads, int stop_at, std::stop_source* stop)
      : num_reads_(num_reads), stop_at_(stop_at), stop_(stop) {}
  const std::string& name() const override { return name_; }
  const AudioFormat& format() const override { return format_; }
  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    if (++*num_reads_ == stop_at_) stop_->request_stop();
    std::ranges::fill(samples, 0.1F);
    const size_t size = std::min(samples.size(), num_left_);
    num_left_ -= size;
    return size;
  }

 private:
  const std::string name_ = "stopping";
  const AudioFormat format_;
  int* const num_reads_;
  const int stop_at_;
  std::stop_source* const stop_;
  size_t num_left_ = size_t{100} << 16;  // a hundred reads
};

// Also while the audio is read a second time, up to a late clip.
TEST_F(TranscriberTest, EndsWhileAudioIsRead) {
  const Transcriber transcriber = Load();
  TranscribeOptions options;
  options.clip_timestamps = {400};
  for (const int stop_at : {1, 50, 103, 150}) {
    std::stop_source stop;
    int num_reads = 0;
    EXPECT_THAT(transcriber
                    .Transcribe(
                        [&] {
                          return std::make_unique<StoppingReader>(
                              &num_reads, stop_at, &stop);
                        },
                        options, nullptr, {.stop = stop.get_token()})
                    .status(),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
    EXPECT_EQ(num_reads, stop_at);
  }
}

TEST_F(TranscriberTest, RefusesOptionsByName) {
  const Transcriber transcriber = Load();
  const std::string path = Audio(1);
  const auto expect_refused =
      [&](const std::function<void(TranscribeOptions&)>& change,
          const std::string& message) {
        TranscribeOptions options;
        change(options);
        const absl::Status status =
            transcriber.TranscribeFile(path, options).status();
        EXPECT_THAT(status, StatusIs(kInvalid, StartsWith(message)));
      };
  expect_refused([](auto& o) { o.temperature = {}; },
                 "temperature must not be empty");
  expect_refused(
      [](auto& o) {
        o.temperature = {0, -0.2};
      },
      "temperature must be in [0, 100], got -0.2");
  expect_refused([](auto& o) { o.temperature.assign(101, 1); },
                 "temperature must have at most 100 numbers, got 101");
  expect_refused([](auto& o) { o.num_beams = 0; },
                 "num_beams must be in [1, 1000], got 0");
  expect_refused([](auto& o) { o.best_of = 0; },
                 "best_of must be in [1, 1000], got 0");
  expect_refused([](auto& o) { o.patience = 0; },
                 "patience must be a number above 0, got 0");
  expect_refused([](auto& o) { o.language = "Klingon"; }, "language: ");
  expect_refused([](auto& o) { o.suppress_tokens = {-2}; },
                 "suppress_tokens must be in [-1, 1959], got -2");
  expect_refused(
      [](auto& o) {
        o.clip_timestamps = {2, 1};
      },
      "clip_timestamps must be seconds in ascending order, got 1 "
      "after 2");
  expect_refused([](auto& o) { o.max_new_tokens = 0; },
                 "max_new_tokens must be in [1, 40], got 0");
  expect_refused([](auto& o) { o.max_initial_timestamp = -1; },
                 "max_initial_timestamp must be in [0, 30], got -1");
  expect_refused([](auto& o) { o.language_detection_threshold = 2; },
                 "language_detection_threshold must be in [0, 1], got 2");
  expect_refused([](auto& o) { o.language_detection_segments = 0; },
                 "language_detection_segments must be in [1, 100], got 0");
  expect_refused([](auto& o) { o.patience = 1e300; },
                 "patience must end the search");
  expect_refused([](auto& o) { o.length_penalty = -100; }, "length_penalty");
  expect_refused([](auto& o) { o.batch_size = 0; },
                 "batch_size must be in [1, 256], got 0");
  expect_refused([](auto& o) { o.batch_size = 257; },
                 "batch_size must be in [1, 256], got 257");
  expect_refused([](auto& o) { o.batch_size = 4; },
                 "batch_size needs vad_model, got 4");
  expect_refused([](auto& o) { o.num_alternatives = -1; },
                 "num_alternatives must be in [0, 1000], got -1");
  expect_refused([](auto& o) { o.initial_prompt = "\xff"; },
                 "initial_prompt must be UTF-8");
  expect_refused([](auto& o) { o.prefix = std::string(200, 'x'); },
                 "prefix must have at most 19 tokens, got ");
}

TEST_F(TranscriberTest, SaysThatAWindowDoesNotFit) {
  const auto error = [&](int64_t num_pages, const TranscribeOptions& options) {
    const int64_t page_bytes = Load().generator()->description().page_bytes;
    const Transcriber transcriber =
        Load({.num_threads = 1, .kv_cache_bytes = num_pages * page_bytes});
    return transcriber.TranscribeFile(Audio(1), options).status();
  };
  using enum absl::StatusCode;
  EXPECT_THAT(error(1, {}),
              StatusIs(kResourceExhausted,
                       "kv_cache_bytes is too small for the keys and values "
                       "of a window"));
  EXPECT_THAT(error(12, {.language = "en", .num_beams = 7}),
              StatusIs(kResourceExhausted,
                       "num_beams is too high for the memory of keys and "
                       "values: lower it or raise kv_cache_bytes, got 7"));
  EXPECT_THAT(error(12, {.language = "en", .temperature = {1}, .best_of = 8}),
              StatusIs(kResourceExhausted,
                       "best_of is too high for the memory of keys and "
                       "values: lower it or raise kv_cache_bytes, got 8"));
}

TEST_F(TranscriberTest, RefusesAudioThatIsNone) {
  const Transcriber transcriber = Load();
  const auto expect_refused = [&](const std::string& path,
                                  const std::string& message) {
    EXPECT_THAT(transcriber.TranscribeFile(path).status(),
                StatusIs(kInvalid, AllOf(HasSubstr(path), HasSubstr(message))));
  };
  expect_refused(files_.Write("empty.wav", ""), "");
  expect_refused(files_.Write("text.wav", "no audio"), "libsndfile");
  expect_refused(files_.Write("short.wav", WavHeaderBytes({})),
                 "at least 10 ms of audio, got 0 samples");
  std::string nan =
      WavHeaderBytes({.format = 3, .bits = 32, .data_bytes = 4 * kRate});
  for (int i = 0; i < kRate; ++i) AppendBytes(i == 9000 ? NAN : 0.5F, nan);
  expect_refused(files_.Write("nan.wav", nan), "0.5625");
  EXPECT_THAT(transcriber.TranscribeFile(files_.path("nothing.wav")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing.wav")));
}

TEST(EnglishTranscriberTest, HasOneLanguage) {
  const WhisperDirectory model({.is_multilingual = false});
  const ScratchDirectory files;
  const std::string path = files.path("a.wav");
  WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 48000, 2,
             Noise(48000 * 3, 0.2F));
  const auto transcriber = Transcriber::Load(model.path());
  ASSERT_OK(transcriber);
  TranscribeOptions options;
  const auto transcript = transcriber->TranscribeFile(path, options);
  ASSERT_OK(transcript.status());
  EXPECT_EQ(transcript->language, "en");
  EXPECT_EQ(transcript->duration, 1.5);
  options.language = "English";
  EXPECT_OK(transcriber->TranscribeFile(path, options));
  options.language = "de";
  EXPECT_THAT(transcriber->TranscribeFile(path, options).status(),
              StatusIs(kInvalid,
                       "language must be en for an English model, got \"de\""));
  options = {.task = SpeechTask::kTranslate};
  EXPECT_THAT(
      transcriber->TranscribeFile(path, options).status(),
      StatusIs(kInvalid,
               "task must be transcribe for an English model, got translate"));
  options = {.multilingual = true};
  EXPECT_THAT(transcriber->TranscribeFile(path, options).status(),
              StatusIs(kInvalid,
                       "multilingual must be false for an English model, got "
                       "true"));
}

TEST(LoadTranscriberTest, NeedsAWhisperModel) {
  EXPECT_THAT(Transcriber::Load(SourcePath("models/en-fr")).status(),
              StatusIs(kInvalid, HasSubstr("has no model of speech")));
  const WhisperDirectory model;
  std::filesystem::remove(model.path() + "/tokenizer.json");
  EXPECT_THAT(Transcriber::Load(model.path()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("put the model's tokenizer there")));
}

// Prompts, chats and scores.
TEST(SpeechModelTest, TextsAreRefusedByTheModelsName) {
  const WhisperDirectory model;
  auto generator = Generator::Load(model.path(), {.num_threads = 1});
  ASSERT_OK(generator.status());
  const auto is_refused =
      StatusIs(kInvalid, Concat(model.path(),
                                " reads audio, not texts or tokens: use "
                                "Transcriber, espalier transcribe or the "
                                "server's /v1/audio/transcriptions"));
  EXPECT_THAT(generator->Generate({.prompt = Prompt("a")}).status(),
              is_refused);
  EXPECT_THAT(
      generator->Generate({.prompt = Prompt(std::vector<TokenId>{1, 2})})
          .status(),
      is_refused);
  EXPECT_THAT(
      generator->Generate({.prompt = Prompt::Templated("a", "fr-en")}).status(),
      is_refused);
  EXPECT_THAT(generator->chat_prompts().status(), is_refused);
  EXPECT_THAT(generator->Score({.prompt = Prompt("a"), .continuations = {"b"}})
                  .status(),
              is_refused);
}

}  // namespace
}  // namespace espalier
