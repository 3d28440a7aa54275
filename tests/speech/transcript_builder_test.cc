#include "speech/transcript_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/speech/whisper_fixture.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kMaxPrevious = 223;

TranscriptBuilder BuilderOf(const WhisperText& whisper,
                            const json::value& run) {
  const auto clips = ClipsOf(NumbersOf<double>(run.at("clip_timestamps")),
                             run.at("num_frames").to_number<int64_t>());
  EXPECT_OK(clips);
  const json::value* const carries =
      run.as_object().if_contains("carry_initial_prompt");
  return TranscriptBuilder(
      *whisper.tokenizer, whisper.tokens,
      PreviousText(NumbersOf<TokenId>(run.at("initial")),
                   carries != nullptr && carries->as_bool(), {}, kMaxPrevious),
      {.clips = *clips,
       .condition_on_previous_text =
           run.at("condition_on_previous_text").as_bool()});
}

void ExpectSegments(const std::vector<TranscriptSegment>& segments,
                    const json::value& expected, int64_t num_frames,
                    const std::vector<std::pair<int64_t, int64_t>>& windows) {
  const json::array& list = expected.as_array();
  ASSERT_EQ(segments.size(), list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(segments[i].id, static_cast<int64_t>(i));
    EXPECT_EQ(segments[i].seek, list[i].at(0).to_number<int64_t>());
    EXPECT_EQ(segments[i].text, std::string(list[i].at(3).as_string()));
    EXPECT_EQ(segments[i].tokens, NumbersOf<TokenId>(list[i].at(4)));
    // openai's times may be past the end of the audio.
    const auto window = std::ranges::find(
        windows, segments[i].seek, [](const auto& w) { return w.first; });
    ASSERT_NE(window, windows.end());
    const double latest =
        static_cast<double>(window->first + window->second) / 100;
    EXPECT_DOUBLE_EQ(segments[i].start,
                     std::min(list[i].at(1).to_number<double>(), latest));
    EXPECT_DOUBLE_EQ(segments[i].end,
                     std::min(list[i].at(2).to_number<double>(), latest));
    EXPECT_LE(segments[i].end, static_cast<double>(num_frames) / 100);
  }
}

TEST(TranscriptBuilderTest, WalksAsOpenaiDoes) {
  const WhisperText whisper = LoadWhisperText();
  const json::value references = TranscriptReferences();
  int num_segments = 0;
  int number = 0;
  for (const json::value& run : references.at("runs").as_array()) {
    SCOPED_TRACE(number++);
    TranscriptBuilder builder = BuilderOf(whisper, run);
    std::vector<std::pair<int64_t, int64_t>> windows;
    for (const json::value& window : run.at("windows").as_array()) {
      const auto next = builder.Next();
      ASSERT_TRUE(next.has_value());
      EXPECT_EQ(next->size, window.at("size").to_number<int64_t>());
      EXPECT_EQ(builder.Prompt(), NumbersOf<TokenId>(window.at("prompt")));
      windows.emplace_back(next->first, next->size);
      EXPECT_OK(builder.Add(
          {.tokens = NumbersOf<TokenId>(window.at("tokens")),
           .quality = {.avg_logprob =
                           window.at("avg_logprob").to_number<double>()},
           .temperature = window.at("temperature").to_number<double>(),
           .no_speech_prob = window.at("no_speech_prob").to_number<double>()}));
    }
    EXPECT_FALSE(builder.Next().has_value());
    const auto transcript = builder.Take();
    ASSERT_OK(transcript);
    ExpectSegments(transcript->segments, run.at("segments"),
                   run.at("num_frames").to_number<int64_t>(), windows);
    num_segments += static_cast<int>(transcript->segments.size());
  }
  EXPECT_GE(num_segments, 40);
}

TEST(TranscriptBuilderTest, MarksSilentWindowsAndKeepsAlternatives) {
  const WhisperText whisper = LoadWhisperText();
  TranscriptBuilder builder(*whisper.tokenizer, whisper.tokens,
                            PreviousText({}, false, {}, kMaxPrevious),
                            {.clips = {{0, 3500}}});
  ASSERT_TRUE(builder.Next().has_value());
  const auto silent = builder.Add({.tokens = {5, 6},
                                   .quality = {.avg_logprob = -1.5},
                                   .no_speech_prob = 0.7,
                                   .alternatives = {{.text = "x"}}});
  ASSERT_OK(silent);
  EXPECT_THAT(*silent, IsEmpty());
  const auto next = builder.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->first, 3000);
  EXPECT_EQ(next->size, 500);
  ASSERT_OK(builder.Add({.tokens = {'!', '!'}}));
  const auto transcript = builder.Take();
  ASSERT_OK(transcript);
  ASSERT_EQ(transcript->windows.size(), 2u);
  EXPECT_TRUE(transcript->windows[0].is_silent);
  ASSERT_EQ(transcript->windows[0].alternatives.size(), 1u);
  EXPECT_EQ(transcript->windows[0].alternatives[0].text, "x");
  EXPECT_FALSE(transcript->windows[1].is_silent);
  EXPECT_EQ(transcript->windows[1].end, 35);
  ASSERT_EQ(transcript->segments.size(), 1u);
  EXPECT_EQ(transcript->segments[0].text, transcript->text);
}

// Words end where those of its window's language do.
TEST(TranscriptBuilderTest, WordsAreThoseOfTheWindowsLanguage) {
  const WhisperText whisper = LoadWhisperText();
  const auto tokens = whisper.tokenizer->Encode(" Hello Qzxq");
  ASSERT_OK(tokens);
  for (const bool has_languages : {false, true}) {
    TranscriptBuilder builder(
        *whisper.tokenizer, whisper.tokens,
        PreviousText({}, false, {}, kMaxPrevious),
        {.clips = {{0, 9000}},
         .has_languages = has_languages,
         .words = WordOptions{.prepend_punctuations = "",
                              .append_punctuations = ""}});
    for (const std::string language : {"ja", "en", "th"}) {
      ASSERT_TRUE(builder.Next().has_value());
      const auto segments = builder.Add(
          {.tokens = *tokens, .language = language},
          [](std::span<const TokenId> text) -> absl::StatusOr<TokenTimes> {
            TokenTimes times = {.steps = {0}};
            for (size_t i = 0; i < text.size(); ++i) {
              times.steps.push_back(static_cast<int>(i + 1) * 1500 /
                                    static_cast<int>(text.size()));
              times.probabilities.push_back(1);
            }
            return times;
          });
      ASSERT_OK(segments);
      ASSERT_EQ(segments->size(), 1u);
      EXPECT_EQ(segments->front().language, has_languages ? language : "");
      std::vector<std::string> words;
      for (const TranscriptWord& word : *segments->front().words) {
        words.push_back(word.word);
      }
      if (language == "en") {
        EXPECT_THAT(words, ElementsAre(" Hello", " Qzxq"));
      } else {
        EXPECT_GT(words.size(), 2u);
      }
    }
  }
}

}  // namespace
}  // namespace espalier
