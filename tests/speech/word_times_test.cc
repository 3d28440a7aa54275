// Words against what openai-whisper makes of scripts
// (tools/make_word_references.py).
#include "speech/word_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "speech/transcript_builder.h"
#include "speech/transcript_formats.h"
#include "speech/word_split.h"
#include "tests/source_tree.h"
#include "tests/speech/whisper_fixture.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

json::value WordReferences() {
  return *ParseJson(
      *ReadFile(SourcePath("tests/data/speech/words.json"), 1 << 20));
}

TEST(WordSplitTest, WordsAreThoseOfOpenai) {
  const WhisperText whisper = LoadWhisperText();
  const json::value references = WordReferences();
  for (const json::value& text : references.at("texts").as_array()) {
    const std::string language(text.at("language").as_string());
    const auto tokens = NumbersOf<TokenId>(text.at("tokens"));
    SCOPED_TRACE(WriteJson(text));
    const std::vector<WordTokens> words =
        SplitIntoWords(*whisper.tokenizer, tokens, HasSpaces(language));
    const json::array& expected = text.at("words").as_array();
    ASSERT_EQ(words.size(), expected.size());
    for (size_t i = 0; i < words.size(); ++i) {
      EXPECT_EQ(words[i].word, std::string(expected[i].at(0).as_string()));
      EXPECT_EQ(words[i].tokens, NumbersOf<TokenId>(expected[i].at(1)));
    }
  }
}

// Every token is in one word, and the words spell the text.
TEST(WordSplitTest, LosesNothing) {
  const WhisperText whisper = LoadWhisperText();
  const std::string text(" 日本 naïve — “¿x?” 𝄞!");
  const auto encoded = whisper.tokenizer->Encode(text);
  ASSERT_OK(encoded);
  for (const bool has_spaces : {false, true}) {
    for (size_t size = 0; size <= encoded->size(); ++size) {
      const auto tokens = std::span(*encoded).first(size);
      std::vector<TokenId> all;
      std::string spelled;
      for (const WordTokens& word :
           SplitIntoWords(*whisper.tokenizer, tokens, has_spaces)) {
        EXPECT_FALSE(word.tokens.empty());
        EXPECT_TRUE(IsUtf8(word.word));
        all.insert(all.end(), word.tokens.begin(), word.tokens.end());
        spelled += word.word;
      }
      EXPECT_EQ(all, std::vector<TokenId>(tokens.begin(), tokens.end()));
      if (size == encoded->size()) {
        EXPECT_EQ(spelled, text);
      }
    }
  }
}

WordOptions WordsOf(const json::value& run) {
  WordOptions options;
  const json::object& object = run.as_object();
  if (object.contains("prepend_punctuations")) {
    options.prepend_punctuations = run.at("prepend_punctuations").as_string();
    options.append_punctuations = run.at("append_punctuations").as_string();
  }
  return options;
}

//   latest  the end of the segment's window, past which openai's segments
//           without words may be
void ExpectWords(const TranscriptSegment& segment, const json::value& line,
                 double latest) {
  EXPECT_EQ(segment.seek, line.at(0).to_number<int64_t>());
  EXPECT_DOUBLE_EQ(segment.start,
                   std::min(line.at(1).to_number<double>(), latest));
  EXPECT_DOUBLE_EQ(segment.end,
                   std::min(line.at(2).to_number<double>(), latest));
  EXPECT_EQ(segment.text, std::string(line.at(3).as_string()));
  EXPECT_EQ(segment.tokens, NumbersOf<TokenId>(line.at(4)));
  const json::array& words = line.at(5).as_array();
  ASSERT_TRUE(segment.words.has_value());
  ASSERT_EQ(segment.words->size(), words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    const TranscriptWord& word = (*segment.words)[i];
    EXPECT_EQ(word.word, std::string(words[i].at(0).as_string()));
    EXPECT_DOUBLE_EQ(word.start, words[i].at(1).to_number<double>());
    EXPECT_DOUBLE_EQ(word.end, words[i].at(2).to_number<double>());
    EXPECT_DOUBLE_EQ(word.probability, words[i].at(3).to_number<double>());
  }
}

TEST(WordTimesTest, WindowsAndWordsAreThoseOfOpenai) {
  const WhisperText whisper = LoadWhisperText();
  const json::value references = WordReferences();
  size_t num_words = 0;
  int number = 0;
  for (const json::value& run : references.at("runs").as_array()) {
    SCOPED_TRACE(number++);
    const auto num_frames = run.at("num_frames").to_number<int64_t>();
    const auto clips =
        ClipsOf(NumbersOf<double>(run.at("clip_timestamps")), num_frames);
    ASSERT_OK(clips);
    const json::value& silence = run.at("hallucination_silence_threshold");
    TranscriptBuilderOptions options = {
        .clips = *clips,
        .condition_on_previous_text =
            run.at("condition_on_previous_text").as_bool(),
        .words = WordsOf(run),
        .audio_frames = num_frames};
    if (!silence.is_null()) {
      options.hallucination_silence = silence.to_number<double>();
    }
    TranscriptBuilder builder(*whisper.tokenizer, whisper.tokens,
                              PreviousText({}, false, {}, 223), options);
    for (const json::value& window : run.at("windows").as_array()) {
      const auto next = builder.Next();
      ASSERT_TRUE(next.has_value());
      ASSERT_EQ(next->size, window.at("size").to_number<int64_t>());
      EXPECT_EQ(builder.Prompt(), NumbersOf<TokenId>(window.at("prompt")));
      const auto align =
          [&](std::span<const TokenId> text) -> absl::StatusOr<TokenTimes> {
        const TokenTimes times = {
            NumbersOf<int>(window.at("steps")),
            NumbersOf<double>(window.at("probabilities"))};
        EXPECT_EQ(times.steps.size(), text.size() + 1);
        return times;
      };
      ASSERT_OK(builder.Add(
          {.tokens = NumbersOf<TokenId>(window.at("tokens")),
           .quality = {.avg_logprob =
                           window.at("avg_logprob").to_number<double>()},
           .temperature = window.at("temperature").to_number<double>(),
           .no_speech_prob = window.at("no_speech_prob").to_number<double>()},
          align));
    }
    EXPECT_FALSE(builder.Next().has_value());
    const auto transcript = builder.Take();
    ASSERT_OK(transcript);
    const json::array& segments = run.at("segments").as_array();
    ASSERT_EQ(transcript->segments.size(), segments.size());
    for (size_t i = 0; i < segments.size(); ++i) {
      SCOPED_TRACE(i);
      const auto window =
          std::ranges::find(transcript->windows, transcript->segments[i].seek,
                            &TranscriptWindow::seek);
      ASSERT_NE(window, transcript->windows.end());
      ExpectWords(transcript->segments[i], segments[i], window->end);
      num_words += transcript->segments[i].words->size();
    }
  }
  EXPECT_GE(num_words, 200u);
}

// Also if the words of a window say that it ended where it began.
TEST(WordTimesTest, EveryWindowEnds) {
  const WhisperText whisper = LoadWhisperText();
  std::mt19937 random(3);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    TranscriptBuilderOptions options = {.clips = {{draw(0, 50), 5000}},
                                        .words = WordOptions{},
                                        .audio_frames = 5000};
    if (draw(0, 1) == 0) options.hallucination_silence = draw(0, 2) / 2.0;
    TranscriptBuilder builder(*whisper.tokenizer, whisper.tokens,
                              PreviousText({}, false, {}, 223), options);
    const auto next = builder.Next();
    std::vector<TokenId> tokens;
    for (int left = draw(0, 8); left > 0; --left) {
      tokens.push_back(draw(0, 1) == 0
                           ? draw(0, 100)
                           : whisper.tokens.TimeOf(draw(0, 3) * draw(0, 500)));
    }
    ASSERT_OK(builder.Add(
        {.tokens = tokens},
        [&](std::span<const TokenId> text) -> absl::StatusOr<TokenTimes> {
          TokenTimes times = {.steps = std::vector<int>(text.size() + 1, 0)};
          for (int& step : times.steps) {
            step = draw(0, 1) * draw(0, 1499);
          }
          std::ranges::sort(times.steps);
          times.probabilities.assign(text.size(), 0.1);
          return times;
        }));
    const auto after = builder.Next();
    if (after) {
      EXPECT_GT(after->first, next->first);
    }
  }
}

TEST(WordTimesTest, AnErrorOfAlignmentIsReturned) {
  const WhisperText whisper = LoadWhisperText();
  TranscriptBuilder builder(*whisper.tokenizer, whisper.tokens,
                            PreviousText({}, false, {}, 223),
                            {.clips = {{0, 50}}, .words = WordOptions{}});
  ASSERT_TRUE(builder.Next().has_value());
  EXPECT_THAT(builder
                  .Add({.tokens = {5}},
                       [](auto) -> absl::StatusOr<TokenTimes> {
                         return absl::CancelledError("enough");
                       })
                  .status(),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
}

TEST(SubtitleLinesTest, FilesAreThoseOfOpenai) {
  const json::value references = WordReferences();
  const json::value& subtitles = references.at("subtitles");
  Transcript transcript;
  for (const json::value& words : subtitles.at("segments").as_array()) {
    TranscriptSegment& segment = transcript.segments.emplace_back();
    segment.words.emplace();
    for (const json::value& word : words.as_array()) {
      segment.words->push_back({.word = std::string(word.at(0).as_string()),
                                .start = word.at(1).to_number<double>(),
                                .end = word.at(2).to_number<double>()});
    }
  }
  for (const json::value& file : subtitles.at("files").as_array()) {
    const json::object& object = file.as_object();
    const auto number = [&](const char* name) -> std::optional<int64_t> {
      const json::value* const value = object.if_contains(name);
      if (value == nullptr) return std::nullopt;
      return value->to_number<int64_t>();
    };
    const SubtitleOptions options = {
        .max_line_width = number("max_line_width"),
        .max_line_count = number("max_line_count"),
        .max_words_per_line = number("max_words_per_line"),
        .highlight_words = object.contains("highlight_words")};
    for (const TranscriptFormat format :
         {TranscriptFormat::kVtt, TranscriptFormat::kSrt}) {
      const json::value* const expected = object.if_contains(NameOf(format));
      if (expected == nullptr) continue;
      EXPECT_EQ(FormatTranscript(transcript, format, options),
                std::string(expected->as_string()))
          << NameOf(format);
    }
  }
}

TEST(WordTimesTest, JsonHasWords) {
  const Transcript transcript = {
      .segments = {{.words = {{{.word = " a",
                                .start = 0.5,
                                .end = 1,
                                .probability = 0.25}}}}}};
  const json::value value =
      *ParseJson(FormatTranscript(transcript, TranscriptFormat::kJson));
  EXPECT_EQ(WriteJson(value.at("segments").at(0).at("words")),
            R"([{"word": " a", "start": 0.5, "end": 1.0, )"
            R"("probability": 0.25}])");
}

}  // namespace
}  // namespace espalier
