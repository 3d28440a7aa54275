// A tokenizer that runs out of memory reports it, and does not crash in its
// library, which does not survive it everywhere.
//
// A program of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "tests/few_cases.h"
#include "tests/replace_operator_new.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace {

// Allocations until some fail.
int64_t num_left = 0;
int num_failures_left = 0;

}  // namespace

void espalier::testing::OnAllocation() {
  if (num_failures_left > 0 && --num_left <= 0) {
    --num_failures_left;
    throw std::bad_alloc();
  }
}

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::EnFrTokenizer;

// Runs `call` with failing allocations: each of the first ones in turn, and
// some later ones. If it succeeds, its result must be the usual one.
template <typename Call>
void FailEach(const Call& call) {
  const auto expected = call();
  int num_thrown = 0;
  for (const int num_failures : {1, 5}) {
    bool has_failed = true;
    for (int64_t count = 1; has_failed; count += 1 + count / Cases(64, 4)) {
      num_left = count;
      num_failures_left = num_failures;
      try {
        const auto answer = call();
        has_failed = std::exchange(num_failures_left, 0) < num_failures;
        ASSERT_EQ(answer, expected) << "allocation " << count;
      } catch (const std::bad_alloc&) {
        num_failures_left = 0;
        ++num_thrown;
      }
    }
  }
  EXPECT_GT(num_thrown, 0);
}

const std::string kText = "How old is the captain of this ship? Forty-two, 漢.";

TEST(SentencePieceOutOfMemoryTest, Encode) {
  FailEach([] { return *EnFrTokenizer().Encode(kText); });
}

TEST(SentencePieceOutOfMemoryTest, Decode) {
  ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode(kText));
  FailEach([&] { return *EnFrTokenizer().Decode(tokens); });
}

TEST(SentencePieceOutOfMemoryTest, Load) {
  const std::string file = testing::EnFrDir() + "/tokenizer.model";
  FailEach([&] { return (*Tokenizer::Load(file))->vocab_size(); });
}

}  // namespace
}  // namespace espalier
