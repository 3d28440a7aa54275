#include "espalier/transcribe_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
constexpr int kNumChunks = 20;

// Returns a function of chunks without samples. An error comes in place of
// chunk `num_good`, if that is one.
std::function<absl::StatusOr<std::optional<SpeechChunk>>()> Chunks(
    int64_t num_good = kNumChunks) {
  return [num_good, next = int64_t{0}]() mutable
         -> absl::StatusOr<std::optional<SpeechChunk>> {
    if (next == kNumChunks) return std::nullopt;
    if (next == num_good) return InvalidArgument("audio is broken");
    SpeechChunk chunk = {.index = next, .next = 100 * (next + 1)};
    ++next;
    return chunk;
  };
}

// Later chunks are done sooner.
Transcript Slowly(const SpeechChunk& chunk) {
  std::this_thread::sleep_for(
      std::chrono::microseconds(200 * (chunk.index % 4 == 0 ? 9 : 1)));
  return {.text = Concat(chunk.index, " "),
          .segments = {{.id = 7, .text = "a"}, {.id = 7, .text = "b"}}};
}

TEST(TranscribeChunksTest, TakesTranscriptsInOrder) {
  for (const int64_t num_at_once : {1, 3, 100}) {
    std::atomic<int> running = 0;
    std::atomic<int> most = 0;
    int num_taken = 0;
    Transcript all;
    ASSERT_OK(TranscribeChunks(
        Chunks(), num_at_once, {},
        [&](const SpeechChunk& chunk) {
          const int now = ++running;
          for (int seen = most; now > seen;) {
            if (most.compare_exchange_weak(seen, now)) break;
          }
          Transcript transcript = Slowly(chunk);
          --running;
          return transcript;
        },
        [&](Transcript transcript, int64_t next) {
          EXPECT_EQ(next, 100 * ++num_taken);
          AppendTranscript(std::move(transcript), &all);
          return absl::OkStatus();
        }));
    EXPECT_EQ(num_taken, kNumChunks);
    std::string text;
    for (int i = 0; i < kNumChunks; ++i) text += Concat(i, " ");
    EXPECT_EQ(all.text, text);
    ASSERT_EQ(all.segments.size(), size_t{2 * kNumChunks});
    for (int i = 0; i < 2 * kNumChunks; ++i) EXPECT_EQ(all.segments[i].id, i);
    EXPECT_LE(most, std::min<int64_t>(num_at_once, kNumChunks));
    EXPECT_EQ(running, 0);
  }
}

// Whichever chunk comes first.
TEST(ChunkLanguagesTest, AChunkWithoutALanguageHasThatOfTheChunkBefore) {
  std::vector<NaturalLanguage> all(kNumChunks + 1);
  for (const bool is_forward : {false, true}) {
    for (const int period : {1, 3, 7, kNumChunks + 1}) {
      ChunkLanguages languages(&all[kNumChunks]);
      std::vector<const NaturalLanguage*> resolved(kNumChunks);
      {
        std::vector<std::jthread> threads;
        for (int i = 0; i < kNumChunks; ++i) {
          const int chunk = is_forward ? i : kNumChunks - 1 - i;
          threads.emplace_back([&, chunk] {
            const auto language = languages.Resolve(
                chunk, chunk % period == period - 1 ? &all[chunk] : nullptr,
                {});
            EXPECT_OK(language.status());
            resolved[chunk] = *language;
          });
        }
      }
      const NaturalLanguage* expected = &all[kNumChunks];
      for (int chunk = 0; chunk < kNumChunks; ++chunk) {
        if (chunk % period == period - 1) expected = &all[chunk];
        EXPECT_EQ(resolved[chunk], expected) << chunk << " " << period;
      }
    }
  }
}

TEST(ChunkLanguagesTest, AStopEndsTheWaitForTheChunkBefore) {
  const NaturalLanguage language;
  ChunkLanguages languages(&language);
  std::stop_source stop;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop.request_stop();
  });
  EXPECT_THAT(languages.Resolve(1, nullptr, stop.get_token()).status(),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  EXPECT_OK(languages.Resolve(1, &language, stop.get_token()).status());
}

TEST(TranscribeChunksTest, WithoutChunksThereIsNothingToTake) {
  EXPECT_OK(TranscribeChunks(
      [] { return absl::StatusOr<std::optional<SpeechChunk>>(std::nullopt); },
      3, {}, Slowly,
      [](const Transcript&, int64_t) -> absl::Status {
        return InvalidArgument("taken");
      }));
}

TEST(TranscribeChunksTest, TheFirstErrorEndsAll) {
  for (const int64_t num_at_once : {1, 3}) {
    std::stop_source stop;
    std::atomic<int> num_begun = 0;
    int num_taken = 0;
    const absl::Status status = TranscribeChunks(
        Chunks(), num_at_once, stop,
        [&](const SpeechChunk& chunk) -> absl::StatusOr<Transcript> {
          ++num_begun;
          if (chunk.index == 5) return InvalidArgument("chunk 5");
          // Would never end without the stop.
          while (chunk.index > 5 && !stop.stop_requested()) {
            std::this_thread::yield();
          }
          return Slowly(chunk);
        },
        [&](const Transcript&, int64_t) {
          ++num_taken;
          return absl::OkStatus();
        });
    EXPECT_THAT(status, StatusIs(kInvalid, "chunk 5"));
    EXPECT_LE(num_taken, 5);
    EXPECT_LE(num_begun, 5 + num_at_once);
  }
}

// On the caller's thread, which knows what to do; the others end at once.
TEST(TranscribeChunksTest, ThrowsWhatItsFunctionsThrow) {
  for (const bool taking : {false, true}) {
    std::atomic<int> num_begun = 0;
    std::stop_source stop;
    EXPECT_THROW(
        (void)TranscribeChunks(
            Chunks(), 2, stop,
            [&](const SpeechChunk& chunk) -> absl::StatusOr<Transcript> {
              ++num_begun;
              if (!taking && chunk.index == 3) throw std::bad_alloc();
              while (chunk.index > 3 && !stop.stop_requested()) {
                std::this_thread::yield();
              }
              return Slowly(chunk);
            },
            [&](const Transcript& transcript, int64_t) -> absl::Status {
              if (taking && transcript.text == "3 ") throw std::bad_alloc();
              return absl::OkStatus();
            }),
        std::bad_alloc);
    EXPECT_LE(num_begun, 7);
    EXPECT_TRUE(stop.stop_requested());
  }
}

TEST(TranscribeChunksTest, ErrorsOfReadingAndTakingAreReturned) {
  const auto ignore = [](const Transcript&, int64_t) {
    return absl::OkStatus();
  };
  EXPECT_THAT(TranscribeChunks(Chunks(kNumChunks - 3), 2, {}, Slowly, ignore),
              StatusIs(kInvalid, "audio is broken"));
  std::stop_source stop;
  int num_taken = 0;
  EXPECT_THAT(TranscribeChunks(Chunks(), 2, stop, Slowly,
                               [&](const Transcript&, int64_t) -> absl::Status {
                                 if (++num_taken < 3) return absl::OkStatus();
                                 return absl::CancelledError("enough");
                               }),
              StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(num_taken, 3);
  EXPECT_TRUE(stop.stop_requested());
}

}  // namespace
}  // namespace espalier
