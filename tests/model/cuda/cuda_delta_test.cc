// What a delta puts where, and that mirrored arrays send only what changed.
#include "model/cuda/cuda_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;

// What CudaApplyDelta does.
void Apply(const CudaDelta& delta, std::vector<int>* words) {
  for (const CudaDeltaSegment& segment : delta.segments()) {
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

TEST(MirroredArrayTest, WhatTheDeviceWroteOverIsSentAgain) {
  std::vector<int> device(8);
  MirroredArray<int> array(device.data());
  const std::vector<int> values = {1, 2, 3, 4, 5, 6};
  const std::vector<int> fewer = {1, 2};
  for (const auto& sent : {values, fewer, values}) {
    CudaDelta delta(device.data());
    array.Update(sent, &delta);
    Apply(delta, &device);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), device.begin()));
    if (sent.size() > fewer.size()) continue;
    std::fill(device.begin() + 4, device.end(), -1);
    array.ForgetBehind(4);
  }
  CudaDelta again(device.data());
  array.ForgetBehind(6);
  array.Update(values, &again);
  EXPECT_TRUE(again.empty());
}

TEST(MirroredArrayTest, TheDeviceHasTheLastValuesAndUnchangedOnesAreNotSent) {
  std::mt19937 random(3);
  std::vector<int> device(20);
  MirroredArray<int> array(device.data());
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
    array.Update(values, &delta);
    num_sent += !delta.empty();
    Apply(delta, &device);
    ASSERT_TRUE(std::equal(values.begin(), values.end(), device.begin()));
    CudaDelta second(device.data());
    array.Update(values, &second);
    ASSERT_TRUE(second.empty());
  }
  EXPECT_LT(num_sent, 400);
}

}  // namespace
}  // namespace espalier
