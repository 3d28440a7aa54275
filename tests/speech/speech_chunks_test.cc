#include "speech/speech_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "speech/voice_activity.h"
#include "tests/few_cases.h"
#include "tests/speech/signals.h"
#include "tests/speech/tone_network.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// Tones, which the network takes for speech, and silence.
std::vector<float> RandomTones(std::mt19937* random) {
  std::vector<float> samples;
  const int num_parts = static_cast<int>((*random)() % 12);
  for (int i = 0; i < num_parts; ++i) {
    const auto size = static_cast<int>((*random)() % 30'000);
    const std::vector<float> part =
        i % 2 == 0 ? std::vector<float>(size) : Sine(1000, 16000, size, 0.5);
    samples.insert(samples.end(), part.begin(), part.end());
  }
  return samples;
}

// The spans of all of the audio, grouped, and their samples.
std::vector<SpeechChunk> Expected(const VoiceActivity& network,
                                  const VadOptions& options,
                                  int64_t max_samples,
                                  const std::vector<float>& audio) {
  std::vector<float> probabilities;
  VoiceActivityStream stream(network);
  stream.Push(audio, &probabilities);
  stream.Finish(&probabilities);
  std::vector<SpeechChunk> chunks;
  std::vector<std::vector<float>> samples;
  for (const SpeechSpan& span :
       FindSpeech(probabilities, std::ssize(audio), options)) {
    const int64_t size = span.end - span.first;
    if (chunks.empty() || std::ssize(samples.back()) + size > max_samples) {
      chunks.push_back({.index = std::ssize(chunks)});
      samples.emplace_back();
    }
    chunks.back().spans.push_back(span);
    samples.back().insert(samples.back().end(), audio.begin() + span.first,
                          audio.begin() + span.end);
  }
  int64_t first = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].first = first;
    first += std::ssize(samples[i]);
    chunks[i].next = i + 1 < chunks.size() ? chunks[i + 1].spans.front().first
                                           : std::ssize(audio);
    chunks[i].samples =
        std::make_shared<const std::vector<float>>(std::move(samples[i]));
  }
  return chunks;
}

TEST(SpeechChunksTest, RunsOfAnySizeHaveTheChunksOfTheWholeAudio) {
  const auto network = VoiceActivity::Create(ToneTensors());
  ASSERT_OK(network);
  auto pool = ThreadPool::Create(3);
  ASSERT_OK(pool);
  std::mt19937 random(1);
  int num_chunks = 0;
  for (int i = 0; i < Cases(200, 30); ++i) {
    SCOPED_TRACE(i);
    const std::vector<float> audio = RandomTones(&random);
    VadOptions options = VadOptions::ForChunks();
    options.speech_pad_ms = 200.0 * (random() % 4);
    options.min_silence_duration_ms = 100.0 * (random() % 8);
    const int64_t max_samples = 1 + random() % 60'000;
    const std::vector<SpeechChunk> expected =
        Expected(*network, options, max_samples, audio);
    SpeechChunker chunker(*network, options, max_samples, "a", pool->get());
    std::vector<SpeechChunk> chunks;
    for (size_t at = 0; at < audio.size();) {
      const size_t size =
          std::min<size_t>(audio.size() - at, random() % 20'000);
      chunker.Push(std::span(audio).subspan(at, size), &chunks);
      at += size;
      EXPECT_EQ(chunker.num_samples(), static_cast<int64_t>(at));
    }
    chunker.Finish(&chunks);
    ASSERT_EQ(chunks.size(), expected.size());
    for (size_t c = 0; c < chunks.size(); ++c) {
      EXPECT_EQ(chunks[c].index, expected[c].index);
      EXPECT_EQ(chunks[c].first, expected[c].first);
      EXPECT_EQ(chunks[c].spans, expected[c].spans);
      EXPECT_EQ(chunks[c].next, expected[c].next);
      EXPECT_EQ(*chunks[c].samples, *expected[c].samples);
      EXPECT_EQ(chunks[c].name, "a");
    }
    num_chunks += static_cast<int>(chunks.size());
  }
  EXPECT_GT(num_chunks, Cases(200, 30));
}

}  // namespace
}  // namespace espalier
