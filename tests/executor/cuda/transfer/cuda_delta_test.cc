// Destinations of a delta's words; shadowed arrays send only changes.
#include "executor/cuda/transfer/cuda_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

// Applies a delta as CudaApplyStagedWrites does.
void Apply(const CudaDelta& delta, std::vector<int>* words) {
  for (const CudaStagedWrite& segment : delta.segments()) {
    for (int i = 0; i < segment.count; ++i) {
      words->at(segment.target + i) = delta.payload()[segment.source + i];
    }
  }
}

TEST(CudaDeltaTest, PutsWordsOfAnyTypeWhereTheyBelong) {
  std::vector<int> words(12, -1);
  CudaDelta delta(words.data());
  EXPECT_TRUE(delta.empty());
  const std::vector<float> floats = {1.0f, -2.0f};
  delta.Put<float>(reinterpret_cast<const float*>(&words[3]), floats);
  delta.Put(&words[9], 7);
  delta.Put<int>(&words[0], std::vector<int>());
  const CudaDelta::Shared shared = delta.Share(std::vector<int>{4, 5});
  delta.Put(&words[0], shared);
  delta.Put(&words[6], shared);
  Apply(delta, &words);
  EXPECT_THAT(
      words, ElementsAre(4, 5, -1, 0x3F800000, static_cast<int>(0xC0000000), -1,
                         4, 5, -1, 7, -1, -1));
  delta.Clear();
  EXPECT_TRUE(delta.empty());
}

TEST(CudaDeltaTest, LongArraysArriveWhole) {
  std::vector<int> words(1000);
  std::vector<int> values(777);
  std::iota(values.begin(), values.end(), 1);
  CudaDelta delta(words.data());
  delta.Put<int>(words.data() + 100, values);
  Apply(delta, &words);
  EXPECT_EQ(std::vector<int>(words.begin() + 100, words.begin() + 877), values);
  EXPECT_EQ(words[99] + words[877], 0);
}

// Returns the words after a transfer through a buffer of `num_segments`
// segments and `num_payload` words.
std::vector<int> ThroughPieces(const CudaDelta& delta, size_t num_segments,
                               size_t num_payload, size_t num_words,
                               int* num_pieces) {
  std::vector<CudaStagedWrite> segments(num_segments);
  std::vector<int> payload(num_payload);
  std::vector<int> words(num_words, -1);
  *num_pieces = 0;
  for (size_t sent = 0; sent < delta.segments().size(); ++*num_pieces) {
    const size_t count = CopyPiece(delta, sent, segments, payload);
    EXPECT_GT(count, 0u);
    for (size_t s = 0; s < count; ++s) {
      for (int i = 0; i < segments[s].count; ++i) {
        words.at(segments[s].target + i) = payload.at(segments[s].source + i);
      }
    }
    sent += count;
  }
  return words;
}

TEST(CudaDeltaTest, PiecesThatFitABufferAreTheWhole) {
  std::mt19937 random(5);
  int most_pieces = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<int> words(20000, -1);
    CudaDelta delta(words.data());
    size_t place = 0;
    std::vector<int> values(random() % 300);
    std::iota(values.begin(), values.end(), 1);
    const CudaDelta::Shared shared = delta.Share(values);
    for (int put = random() % 40; put > 0; --put) {
      const std::vector<int> own(random() % 90, put);
      if (random() % 2 == 0) {
        delta.Put(words.data() + place, shared);
        place += values.size();
      } else {
        delta.Put<int>(words.data() + place, own);
        place += own.size();
      }
    }
    Apply(delta, &words);
    int num_pieces = 0;
    ASSERT_EQ(ThroughPieces(delta, 1 + random() % 200, 64 + random() % 4000,
                            words.size(), &num_pieces),
              words);
    most_pieces = std::max(most_pieces, num_pieces);
    ASSERT_EQ(
        ThroughPieces(delta, delta.segments().size(),
                      delta.payload().size() + 64, words.size(), &num_pieces),
        words);
    ASSERT_LE(num_pieces, 1);
  }
  EXPECT_GT(most_pieces, 10);
}

TEST(ShadowedArrayTest, WhatTheDeviceWroteOverIsSentAgain) {
  std::vector<int> device(8);
  ShadowedArray<int> array;
  const std::vector<int> values = {1, 2, 3, 4, 5, 6};
  const std::vector<int> fewer = {1, 2};
  for (const auto& sent : {values, fewer, values}) {
    CudaDelta delta(device.data());
    array.Update(sent, device.data(), &delta);
    Apply(delta, &device);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), device.begin()));
    if (sent.size() > fewer.size()) continue;
    std::fill(device.begin() + 4, device.end(), -1);
    array.InvalidateFrom(4);
  }
  CudaDelta again(device.data());
  array.InvalidateFrom(6);
  array.Update(values, device.data(), &again);
  EXPECT_TRUE(again.empty());
}

TEST(ShadowedArrayTest, TheDeviceHasTheLastValuesAndUnchangedOnesAreNotSent) {
  std::mt19937 random(3);
  std::vector<int> device(20);
  ShadowedArray<int> array;
  std::vector<int> values;
  int num_sent = 0;
  for (int i = 0; i < 500; ++i) {
    if (random() % 3 != 0) {
      values.resize(random() % 20);
      for (int& value : values) value = random() % 2;
    }
    CudaDelta delta(device.data());
    if (random() % 20 == 0) {
      array.Forget();
      device.assign(20, -1);
    }
    array.Update(values, device.data(), &delta);
    num_sent += !delta.empty();
    Apply(delta, &device);
    ASSERT_TRUE(std::equal(values.begin(), values.end(), device.begin()));
    CudaDelta second(device.data());
    array.Update(values, device.data(), &second);
    ASSERT_TRUE(second.empty());
  }
  EXPECT_LT(num_sent, 400);
}

}  // namespace
}  // namespace espalier
