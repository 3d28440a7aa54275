// Words of a Transcriber with a small random model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "espalier/transcriber.h"
#include "model/transformer_model.h"
#include "tests/scratch_directory.h"
#include "tests/speech/signals.h"
#include "tests/speech/wav_file.h"
#include "tests/status_matchers.h"
#include "tests/whisper_directory.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TranscriberWordsTest : public ::testing::Test {
 protected:
  static Transcriber LoadModel(const WhisperDirectory& model,
                               const GeneratorOptions& options = {
                                   .num_threads = 2}) {
    auto transcriber = Transcriber::Load(model.path(), options);
    EXPECT_OK(transcriber);
    return *std::move(transcriber);
  }

  std::string NoiseFile(double seconds, int seed = 1) const {
    const std::string path = files_.path(Concat("noise", seed, ".wav"));
    std::vector<float> samples =
        Noise(static_cast<int>(seconds * 16000) + seed, 0.1F);
    samples.resize(static_cast<size_t>(seconds * 16000));
    WriteAudio(path, SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1, samples);
    return path;
  }

  const ScratchDirectory files_;
};

TranscribeOptions WithWords() {
  TranscribeOptions options;
  options.temperature = {0, 0.7};
  options.num_beams = 3;
  options.best_of = 2;
  options.num_alternatives = 2;
  options.thresholds.no_speech.reset();
  options.word_timestamps = true;
  return options;
}

std::string JsonOf(const Transcript& transcript) {
  return FormatTranscript(transcript, TranscriptFormat::kJson);
}

void ExpectSoundWords(const Transcript& transcript, double duration) {
  for (const TranscriptSegment& segment : transcript.segments) {
    ASSERT_TRUE(segment.words.has_value());
    EXPECT_GE(segment.start, 0);
    std::string text;
    for (const TranscriptWord& word : *segment.words) {
      EXPECT_THAT(word.word, Not(IsEmpty()));
      EXPECT_GE(word.probability, 0);
      EXPECT_LE(word.probability, 1);
      EXPECT_GE(word.start, 0);
      EXPECT_LE(word.start, word.end + 1e-9);
      EXPECT_LE(word.end, duration + 0.7);
      text += word.word;
    }
    if (segment.words->empty()) continue;
    // Far longer words are kept at the segment's times.
    EXPECT_GE(segment.start, segment.words->front().start - 1e-9);
    EXPECT_LE(segment.end, segment.words->back().end + 1e-9);
  }
}

TEST_F(TranscriberWordsTest, WordsSpellTheTextAndAreInTheAudio) {
  const WhisperDirectory model;
  const Transcriber transcriber = LoadModel(model);
  const std::string path = NoiseFile(5.3);
  const std::vector<std::function<void(TranscribeOptions&)>> changes = {
      [](auto&) {},
      [](auto& o) { o.without_timestamps = true; },
      [](auto& o) { o.task = SpeechTask::kTranslate; },
      [](auto& o) { o.language = "ja"; },
      [](auto& o) {
        o.clip_timestamps = {0.5, 1.25, 2, 2.01, 3};
      },
      [](auto& o) { o.hallucination_silence_threshold = 0.1; },
      [](auto& o) { o.prefix = "Ask not"; },
      [](auto& o) { o.max_new_tokens = 33; },
      [](auto& o) { o.append_punctuations = o.prepend_punctuations = ""; }};
  size_t num_words = 0;  // bytes
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    TranscribeOptions options = WithWords();
    changes[i](options);
    const auto transcript = transcriber.TranscribeFile(path, options);
    ASSERT_OK(transcript.status());
    ExpectSoundWords(*transcript, 5.3);
    std::string words, text;
    for (const TranscriptSegment& segment : transcript->segments) {
      text += segment.text;
      for (const TranscriptWord& word : *segment.words) words += word.word;
    }
    // A word may be of another segment, and of one that is left out.
    if (options.without_timestamps) {
      EXPECT_EQ(words, text);
    }
    num_words += words.size();
  }
  EXPECT_GT(num_words, 100u);
}

TEST_F(TranscriberWordsTest, WordsAreTimedInTheWindowsLanguage) {
  const WhisperDirectory model;
  const Transcriber transcriber = LoadModel(model);
  for (const int seed : {1, 2, 3}) {
    TranscribeOptions options = WithWords();
    options.num_alternatives = 0;
    options.clip_timestamps = {0, 1};
    options.language_detection_threshold = 0;
    const std::string path = NoiseFile(1, seed);
    const auto detected = transcriber.TranscribeFile(path, options);
    ASSERT_OK(detected);
    options.language = detected->language == "de" ? "fr" : "de";
    options.multilingual = true;
    auto of_window = transcriber.TranscribeFile(path, options);
    ASSERT_OK(of_window);
    ASSERT_THAT(of_window->segments, Not(IsEmpty()));
    for (size_t i = 0; i < of_window->segments.size(); ++i) {
      TranscriptSegment& segment = of_window->segments[i];
      if (segment.seek > 0) break;
      EXPECT_EQ(std::exchange(segment.language, ""), detected->language);
      ASSERT_LT(i, detected->segments.size());
      EXPECT_EQ(JsonOf({.segments = {segment}}),
                JsonOf({.segments = {detected->segments[i]}}));
    }
  }
}

TEST_F(TranscriberWordsTest, WithoutThemNothingChanges) {
  const WhisperDirectory model;
  const Transcriber transcriber = LoadModel(model);
  TranscribeOptions options = WithWords();
  options.word_timestamps = false;
  const auto transcript = transcriber.TranscribeFile(NoiseFile(3), options);
  ASSERT_OK(transcript);
  for (const TranscriptSegment& segment : transcript->segments) {
    EXPECT_FALSE(segment.words.has_value());
  }
  EXPECT_THAT(JsonOf(*transcript), Not(HasSubstr("\"words\"")));
}

TEST_F(TranscriberWordsTest, ResultsDoNotDependOnWhatElseRuns) {
  const WhisperDirectory model;
  const std::vector<std::string> paths = {NoiseFile(4.2, 1), NoiseFile(3.1, 2)};
  std::vector<std::string> alone;
  {
    const Transcriber transcriber = LoadModel(model);
    for (const std::string& path : paths) {
      const auto transcript = transcriber.TranscribeFile(path, WithWords());
      ASSERT_OK(transcript.status());
      alone.push_back(JsonOf(*transcript));
    }
  }
  const int64_t page_bytes =
      LoadModel(model).generator()->description().page_bytes;
  for (const GeneratorOptions& options :
       {GeneratorOptions{.num_threads = 3, .page_size = 4},
        GeneratorOptions{.num_threads = 1,
        .kv_cache_bytes = 14 * page_bytes,
        .max_step_tokens = 8}}) {
    const Transcriber transcriber = LoadModel(model, options);
    std::vector<std::string> together(paths.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < paths.size(); ++i) {
      threads.emplace_back([&, i] {
        const auto transcript =
            transcriber.TranscribeFile(paths[i], WithWords());
        EXPECT_OK(transcript.status());
        if (transcript.ok()) together[i] = JsonOf(*transcript);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(together, alone);
  }
}

// The encoder's output is found in the prefix cache.
TEST_F(TranscriberWordsTest, TheEncoderReadsEachWindowOnce) {
  const WhisperDirectory model;
  const Transcriber transcriber = LoadModel(model);
  const auto transcript = transcriber.TranscribeFile(NoiseFile(4), WithWords());
  ASSERT_OK(transcript.status());
  const GeneratorStats stats = transcriber.generator()->Stats();
  EXPECT_EQ(stats.num_queried_tokens - stats.num_cached_tokens,
            std::ssize(transcript->windows) * kSmallWindow / 2);
}

// They are in generation_config.json or config.json, or all upper layers'.
TEST_F(TranscriberWordsTest, HeadsAreThoseOfTheDirectory) {
  const WhisperDirectory model;
  const std::string path = NoiseFile(2.5);
  TranscribeOptions options = WithWords();
  options.language = "en";
  const auto words_with = [&](const char* name, const char* heads) {
    const std::string file = model.files().path(name);
    const std::string before = *ReadFile(file, 1 << 20);
    if (heads != nullptr) {
      model.files().Write(name, Concat(before.substr(0, before.rfind('}')),
                                       ", \"alignment_heads\": ", heads, "}"));
    }
    auto transcriber = Transcriber::Load(model.path(), {.num_threads = 1});
    model.files().Write(name, before);
    if (!transcriber.ok()) return std::string(transcriber.status().message());
    const auto transcript = transcriber->TranscribeFile(path, options);
    EXPECT_OK(transcript);
    return JsonOf(*transcript);
  };
  const char kGeneration[] = "generation_config.json";
  const std::string all = words_with(kGeneration, nullptr);
  EXPECT_EQ(words_with(kGeneration, "[[0, 0], [0, 1]]"), all);
  EXPECT_EQ(words_with(kGeneration, "[]"), all);
  EXPECT_EQ(words_with(kGeneration, "null"), all);
  const std::string one = words_with(kGeneration, "[[0, 1]]");
  EXPECT_NE(one, all);
  EXPECT_EQ(words_with("config.json", "[[0, 1]]"), one);
  for (const char* const wrong :
       {"7", "[0, 1]", "[[0]]", "[[0, 2]]", "[[1, 0]]", "[[-1, 0]]",
        "[[0, 0.5]]", "[[0, 0, 0]]", "[\"a\"]"}) {
    EXPECT_THAT(words_with(kGeneration, wrong),
                AllOf(HasSubstr("generation_config.json: alignment_heads must "
                                "be pairs of a layer below 1 and a head below "
                                "2, got "),
                      HasSubstr(wrong)));
  }
}

// As a caller's own model may.
class ModelWithoutAttention : public Model {
 public:
  explicit ModelWithoutAttention(std::unique_ptr<TransformerModel> model)
      : model_(std::move(model)), description_(model_->description()) {
    description_.encoder->reported_attention.reset();
  }
  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    return model_->Forward(plan, logits);
  }

 private:
  const std::unique_ptr<TransformerModel> model_;
  ModelDescription description_;
};

TEST_F(TranscriberWordsTest, ModelsThatReportNoAttentionHaveNone) {
  const WhisperDirectory directory;
  auto pool = ThreadPool::Create(1);
  ASSERT_OK(pool);
  auto model = TransformerModel::Load(directory.path(),
                                      {.kv_cache_bytes = 8 << 20}, *pool);
  ASSERT_OK(model);
  auto tokenizer = Tokenizer::LoadDirectory(directory.path());
  ASSERT_OK(tokenizer);
  auto generator = Generator::Create(
      std::make_shared<ModelWithoutAttention>(*std::move(model)),
      *std::move(tokenizer), {.num_threads = 1});
  ASSERT_OK(generator);
  const auto transcriber = Transcriber::Create(
      std::make_shared<Generator>(*std::move(generator)), directory.path());
  ASSERT_OK(transcriber);
  TranscribeOptions options = WithWords();
  EXPECT_THAT(
      transcriber->Check(options),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("word_timestamps must be false: the model reports "
                         "no attention")));
  options.word_timestamps = false;
  EXPECT_OK(transcriber->TranscribeFile(NoiseFile(1.5), options));
}

TEST_F(TranscriberWordsTest, RefusesOptionsWithoutEffect) {
  const WhisperDirectory model;
  const Transcriber transcriber = LoadModel(model);
  const auto error =
      [&](const std::function<void(TranscribeOptions&)>& change) {
        TranscribeOptions options;
        change(options);
        return std::string(transcriber.Check(options).message());
      };
  EXPECT_THAT(error([](auto& o) { o.prepend_punctuations = "("; }),
              HasSubstr("prepend_punctuations needs word_timestamps"));
  EXPECT_THAT(error([](auto& o) { o.append_punctuations = "("; }),
              HasSubstr("append_punctuations needs word_timestamps"));
  EXPECT_THAT(
      error([](auto& o) { o.hallucination_silence_threshold = 1; }),
      HasSubstr("hallucination_silence_threshold needs word_timestamps"));
  const auto with_words = [&](auto change) {
    return error([&](TranscribeOptions& options) {
      options.word_timestamps = true;
      change(options);
    });
  };
  EXPECT_EQ(with_words([](auto&) {}), "");
  EXPECT_THAT(
      with_words([](auto& o) { o.hallucination_silence_threshold = -1; }),
      HasSubstr("hallucination_silence_threshold must be in [0, "));
  EXPECT_THAT(with_words([](auto& o) { o.append_punctuations = "\xff"; }),
              HasSubstr("append_punctuations must be UTF-8"));
  EXPECT_THAT(with_words([](auto& o) { o.max_new_tokens = 34; }),
              HasSubstr("max_new_tokens must be in [1, 33]"));
}

}  // namespace
}  // namespace espalier
