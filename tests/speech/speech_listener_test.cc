#include "speech/speech_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/speech/signals.h"
#include "tests/speech/tone_network.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

constexpr int kNumTones = 12;
constexpr int64_t kPeriod = 24'000;  // a tone, and silence

const VoiceActivity& ToneNetwork() {
  static const VoiceActivity* const network =
      new VoiceActivity(*VoiceActivity::Create(ToneTensors()));
  return *network;
}

// Tones that the network takes for speech; after `num_good` samples it fails or
// throws.
class ToneReader : public AudioReader {
 public:
  enum class End { kNone, kError, kThrow };
  explicit ToneReader(End end = End::kNone,
                      int64_t num_good = kNumTones * kPeriod)
      : end_(end), num_good_(num_good), tone_(Sine(1000, 16000, 8000, 0.5)) {}

  const std::string& name() const override { return name_; }
  const AudioFormat& format() const override { return format_; }
  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    size_t size = 0;
    for (; size < samples.size() && at_ < num_good_; ++at_, ++size) {
      const auto in_period = static_cast<size_t>(at_ % kPeriod);
      samples[size] = in_period < tone_.size() ? tone_[in_period] : 0.0F;
    }
    if (size == samples.size() || end_ == End::kNone) return size;
    if (end_ == End::kThrow) throw std::bad_alloc();
    return InvalidArgument("a is broken");
  }

 private:
  const End end_;
  const int64_t num_good_;
  const std::vector<float> tone_;
  const std::string name_ = "a";
  const AudioFormat format_ = {};
  int64_t at_ = 0;
};

std::unique_ptr<SpeechListener> Listen(std::unique_ptr<AudioReader> audio,
                                       size_t num_ahead) {
  auto listener = SpeechListener::Start(std::move(audio), ToneNetwork(),
                                        {.vad = VadOptions::ForChunks(),
                                         .max_samples = 1,  // a span each
                                         .num_ahead = num_ahead});
  EXPECT_OK(listener);
  return *std::move(listener);
}

TEST(SpeechListenerTest, ChunksAreTheSameHoweverManyWait) {
  std::vector<std::vector<SpeechSpan>> expected;
  for (const size_t num_ahead : {1, 3, 100}) {
    const auto listener = Listen(std::make_unique<ToneReader>(), num_ahead);
    std::vector<std::vector<SpeechSpan>> found;
    while (true) {
      const auto chunk = listener->Next();
      ASSERT_OK(chunk);
      if (!*chunk) break;
      EXPECT_EQ((*chunk)->index, std::ssize(found));
      found.push_back((*chunk)->spans);
    }
    EXPECT_EQ(listener->num_samples(), kNumTones * kPeriod);
    EXPECT_EQ(found.size(), size_t{kNumTones});
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
    // The end lasts.
    const auto after = listener->Next();
    ASSERT_OK(after);
    EXPECT_FALSE(*after);
  }
}

TEST(SpeechListenerTest, ThreadsTakeEachChunkOnce) {
  const auto listener = Listen(std::make_unique<ToneReader>(), 2);
  std::vector<int> counts(kNumTones);  // each of one thread
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (true) {
        const auto chunk = listener->Next();
        if (!chunk.ok() || !*chunk) return;
        ++counts[(*chunk)->index];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(counts, ::testing::Each(1));
}

TEST(SpeechListenerTest, TheFirstSpansAreKnownBeforeTheyAreTaken) {
  const auto listener = Listen(std::make_unique<ToneReader>(), 3);
  const auto first = listener->SpansOfFirst(3);
  ASSERT_OK(first);
  ASSERT_EQ(first->size(), 3u);
  for (const SpeechSpan& span : *first) {
    const auto chunk = listener->Next();
    ASSERT_OK(chunk);
    EXPECT_EQ((*chunk)->spans, std::vector{span});
  }
  // An audio may have fewer.
  const auto short_one =
      Listen(std::make_unique<ToneReader>(ToneReader::End::kNone, kPeriod), 9);
  const auto spans = short_one->SpansOfFirst(9);
  ASSERT_OK(spans);
  EXPECT_EQ(spans->size(), 1u);
}

TEST(SpeechListenerTest, ErrorsComeAfterTheChunksBeforeThem) {
  const auto listener =
      Listen(std::make_unique<ToneReader>(ToneReader::End::kError, 1 << 20), 4);
  absl::StatusOr<std::optional<SpeechChunk>> chunk;
  int num_chunks = 0;
  for (chunk = listener->Next(); chunk.ok() && *chunk; ++num_chunks) {
    chunk = listener->Next();
  }
  EXPECT_THAT(chunk.status(), StatusIs(kInvalid, "a is broken"));
  EXPECT_GT(num_chunks, 0);
  EXPECT_THAT(listener->SpansOfFirst(1).status(),
              StatusIs(kInvalid, "a is broken"));
}

TEST(SpeechListenerTest, ThrowsWhatItsThreadThrows) {
  const auto listener =
      Listen(std::make_unique<ToneReader>(ToneReader::End::kThrow, 0), 4);
  EXPECT_THROW((void)listener->Next(), std::bad_alloc);
}

// Also while the thread waits for room, and others for chunks.
TEST(SpeechListenerTest, CancellingEndsAllWaiting) {
  const auto full = Listen(std::make_unique<ToneReader>(), 1);
  ASSERT_OK(full->SpansOfFirst(1));
  full->Cancel();
  auto chunk = full->Next();
  for (; chunk.ok(); chunk = full->Next()) ASSERT_TRUE(chunk->has_value());
  EXPECT_TRUE(absl::IsCancelled(chunk.status())) << chunk.status();
  // Silence that does not end.
  class Silence : public ToneReader {
   public:
    absl::StatusOr<size_t> Read(std::span<float> samples) override {
      std::ranges::fill(samples, 0.0F);
      return samples.size();
    }
  };
  // The listening thread may notice first.
  for (int i = 0; i < 200; ++i) {
    const auto silent = Listen(std::make_unique<Silence>(), 1);
    std::thread canceller([&] { silent->Cancel(); });
    EXPECT_TRUE(absl::IsCancelled(silent->Next().status())) << i;
    canceller.join();
  }
  Listen(std::make_unique<Silence>(), 1);  // is ended by its destructor
}

}  // namespace
}  // namespace espalier
