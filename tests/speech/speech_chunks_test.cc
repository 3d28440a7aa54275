#include "speech/speech_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Spans = std::vector<SpeechSpan>;

TEST(SpeechChunksTest, GroupsHaveAsManySpansAsFit) {
  EXPECT_THAT(GroupSpans({}, 10), IsEmpty());
  EXPECT_THAT(
      GroupSpans({{0, 4}, {5, 11}, {12, 13}, {20, 40}, {41, 42}, {50, 59}}, 10),
      ElementsAre(Spans{{0, 4}, {5, 11}}, Spans{{12, 13}}, Spans{{20, 40}},
                  Spans{{41, 42}, {50, 59}}));
}

std::unique_ptr<AudioReader> Speech(const Spans& spans, int64_t num_samples) {
  std::vector<float> samples(static_cast<size_t>(num_samples));
  std::iota(samples.begin(), samples.end(), 0.0F);
  return ReadSpansOnly(
      AudioReader::OpenSamples(
          std::make_shared<const std::vector<float>>(std::move(samples)), "a"),
      spans);
}

TEST(SpeechChunksTest, ChunksAreTheSpansOneAfterTheOther) {
  const Spans spans = {{2, 4}, {5, 6}, {7, 10}};
  SpeechChunks chunks(GroupSpans(spans, 3), Speech(spans, 12));
  EXPECT_EQ(chunks.size(), 2);
  auto chunk = chunks.Next();
  ASSERT_OK(chunk.status());
  ASSERT_TRUE(*chunk);
  EXPECT_EQ((*chunk)->index, 0);
  EXPECT_EQ((*chunk)->first, 0);
  EXPECT_EQ((*chunk)->spans, (Spans{{2, 4}, {5, 6}}));
  EXPECT_THAT(*(*chunk)->samples, ElementsAre(2, 3, 5));
  chunk = chunks.Next();
  ASSERT_OK(chunk.status());
  ASSERT_TRUE(*chunk);
  EXPECT_EQ((*chunk)->index, 1);
  EXPECT_EQ((*chunk)->first, 3);
  EXPECT_THAT(*(*chunk)->samples, ElementsAre(7, 8, 9));
  std::vector<float> read(4);
  const auto num_read = (*chunk)->Open()->Read(read);
  ASSERT_OK(num_read.status());
  EXPECT_EQ(*num_read, 3u);
  EXPECT_THAT(read, ElementsAre(7, 8, 9, 0));
  chunk = chunks.Next();
  ASSERT_OK(chunk.status());
  EXPECT_FALSE(*chunk);
}

TEST(SpeechChunksTest, NoticeAudioThatHasBecomeShorter) {
  const Spans spans = {{0, 3}, {7, 10}};
  SpeechChunks chunks(GroupSpans(spans, 3), Speech(spans, 9));
  ASSERT_OK(chunks.Next().status());
  EXPECT_THAT(chunks.Next().status(),
              StatusIs(kInvalid, HasSubstr("a has become shorter")));
}

}  // namespace
}  // namespace espalier
