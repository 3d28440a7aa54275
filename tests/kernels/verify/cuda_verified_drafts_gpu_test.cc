// Verification results on a device, and the steps that begin from them, against
// plain code on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/cuda_pinned_memory.h"
#include "base/cuda_resources.h"
#include "kernels/sample/random.h"
#include "kernels/verify/cuda_verified_drafts.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

// Memory that both sides read.
template <typename T>
class Shared {
 public:
  explicit Shared(std::vector<T> values)
      : buffer_(*PinnedBuffer<T>::Create(std::max<size_t>(values.size(), 1))),
        size_(values.size()) {
    std::ranges::copy(values, buffer_.data());
  }
  T* data() { return buffer_.data(); }
  T& operator[](size_t i) { return buffer_.data()[i]; }
  std::vector<T> values() { return {data(), data() + size_}; }

 private:
  PinnedBuffer<T> buffer_;
  size_t size_ = 0;
};

template <typename T>
uint64_t AddressOf(const T* place) {
  return reinterpret_cast<uint64_t>(place);
}

class CudaVerifiedDraftsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto stream = CudaStream::Create();
    ASSERT_OK(stream.status());
    stream_ = *std::move(stream);
  }
  void Synchronize() {
    ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  }

  std::mt19937 random_{1};
  int Below(int n) { return static_cast<int>(random_() % n); }
  CudaStream stream_;
};

// Tokens of few values agree by chance; some answers come to an end.
TEST_F(CudaVerifiedDraftsTest, WhatIsSaidIsWhatTheHostSays) {
  constexpr int kStride = 7;
  for (const int num_drafts : {1, 5, 32, 33, 100}) {
    Shared<TokenId> tokens(std::vector<TokenId>(num_drafts * 80));
    for (int i = 0; i < num_drafts * 80; ++i) tokens[i] = Below(2);
    std::vector<Candidate> said;
    std::vector<CudaPlacedDraft> drafts;
    Shared<VerifiedDraft> verified(
        std::vector<VerifiedDraft>(num_drafts, {-7, -7}));
    std::vector<VerifiedDraft> expected;
    for (int d = 0; d < num_drafts; ++d) {
      const int num_verified = Below(9);
      const TokenId* const drafted = tokens.data() + d * 80;
      drafts.push_back({.tokens = AddressOf(drafted),
                        .stride = kStride,
                        .num_tokens = 9,
                        .verified = d % 4 == 3 ? 0 : AddressOf(&verified[d]),
                        .first_candidate = static_cast<int>(said.size()),
                        .num_verified = num_verified});
      const size_t first = said.size();
      const int length = Below(4) == 0 ? 1 + Below(num_verified + 1) : 99;
      for (int i = 0; i <= num_verified; ++i) {
        said.push_back({i < length ? i : -1, Below(5) == 0 ? -1 : Below(2), 0});
      }
      int num_accepted = 0;
      while (num_accepted < num_verified &&
             said[first + num_accepted].token ==
                 drafted[num_accepted * kStride] &&
             said[first + num_accepted + 1].beam >= 0) {
        ++num_accepted;
      }
      expected.push_back({num_accepted, said[first + num_accepted].token});
    }
    Shared<CudaPlacedDraft> placed(drafts);
    Shared<Candidate> candidates(said);
    ASSERT_OK(CudaReportVerified(placed.data(), num_drafts, candidates.data(),
                                 stream_.get()));
    Synchronize();
    for (int d = 0; d < num_drafts; ++d) {
      SCOPED_TRACE(d);
      const bool asks = d % 4 != 3;
      EXPECT_EQ(verified[d].num_accepted, asks ? expected[d].num_accepted : -7);
      EXPECT_EQ(verified[d].next, asks ? expected[d].next : -7);
    }
  }
}

TEST_F(CudaVerifiedDraftsTest, RowsBeginWhereVerificationEnds) {
  constexpr int kNumRows = 40, kPageSize = 4, kTableStride = 24;
  std::vector<CudaUnreadRow> rows;
  std::vector<int> tokens, positions, token_tables, tables;
  std::vector<CudaDraw> draws;
  Shared<VerifiedDraft> verified{std::vector<VerifiedDraft>(kNumRows)};
  for (int r = 0; r < kNumRows; ++r) {
    verified[r] = {Below(4), Below(9) == 0 ? -1 : Below(100)};
    if (r == 5) verified[r] = {1'000'000, 3};  // a failed step's
    if (r == 6) verified[r] = {-5, 3};
    const int num_tokens = 1 + Below(80);  // more than a block's threads
    rows.push_back({.verified = AddressOf(&verified[r]),
                    .max_accepted = 3,
                    .first_token = static_cast<int>(tokens.size()),
                    .num_tokens = num_tokens,
                    .first_draw = static_cast<int>(draws.size()),
                    .num_draws = 1 + Below(80),
                    .verify_sequence = r % 3 == 0 ? -1 : r});
    const int first = Below(8);
    for (int i = 0; i < rows.back().num_tokens; ++i) {
      tokens.push_back(1000 + i);
      positions.push_back(first + i);
      token_tables.push_back(r);
    }
    for (int i = 0; i < rows.back().num_draws; ++i) {
      draws.push_back({.position = static_cast<uint32_t>(i)});
    }
    for (int i = 0; i < kTableStride; ++i) {
      tables.push_back(r * kTableStride + (i * 3) % kTableStride);
    }
  }
  Shared<CudaUnreadRow> on_device(rows);
  Shared<int> t(tokens), p(positions), of_token(token_tables), pages(tables);
  Shared<CudaDraw> d(draws);
  Shared<int> page_tokens(
      std::vector<int>(kNumRows * kTableStride * kPageSize, -1));
  Shared<CudaVerifySequence> sequences(
      std::vector<CudaVerifySequence>(kNumRows, {.position = 50}));
  ASSERT_OK(CudaBeginRows(on_device.data(), kNumRows,
                          {.tokens = t.data(),
                           .positions = p.data(),
                           .token_tables = of_token.data(),
                           .tables = pages.data(),
                           .page_tokens = page_tokens.data(),
                           .draws = d.data(),
                           .verify_sequences = sequences.data(),
                           .table_stride = kTableStride,
                           .page_size = kPageSize},
                          stream_.get()));
  Synchronize();
  std::vector<int> fed = page_tokens.values();
  for (int r = 0; r < kNumRows; ++r) {
    SCOPED_TRACE(r);
    const CudaUnreadRow& row = rows[r];
    const int accepted = std::clamp(verified[r].num_accepted, 0, 3);
    const int next = std::max(verified[r].next, 0);
    for (int i = 0; i < row.num_tokens; ++i) {
      const int at = row.first_token + i;
      EXPECT_EQ(p[at], positions[at] + accepted);
      EXPECT_EQ(t[at], i == 0 ? next : tokens[at]);
    }
    for (int i = 0; i < row.num_draws; ++i) {
      EXPECT_EQ(d[row.first_draw + i].position, i + accepted);
    }
    EXPECT_EQ(sequences[r].position, r % 3 == 0 ? 50 : 50 + accepted);
    const int position = positions[row.first_token] + accepted;
    const int page = tables[r * kTableStride + position / kPageSize];
    int& of_page = fed[page * kPageSize + position % kPageSize];
    EXPECT_EQ(of_page, next);
    of_page = -1;
  }
  EXPECT_TRUE(std::ranges::all_of(fed, [](int token) { return token == -1; }));
}

// The token before is fed where the whole draft was accepted, and not else.
TEST_F(CudaVerifiedDraftsTest, DraftsBeginWhereVerificationEnds) {
  constexpr int kNumRows = 70, kNullTable = 99;
  std::vector<CudaUnreadDraft> drafts;
  Shared<VerifiedDraft> verified{std::vector<VerifiedDraft>(kNumRows)};
  Shared<TokenId> last{std::vector<TokenId>(kNumRows)};
  std::vector<int> first_tokens, first_positions, first_tables, tokens,
      positions;
  for (int r = 0; r < kNumRows; ++r) {
    verified[r] = {Below(6) - 1, Below(9) == 0 ? -1 : Below(100)};
    last[r] = Below(9) == 0 ? -1 : 200 + r;
    positions.push_back(10 + r);
    tokens.push_back(0);
    first_tokens.insert(first_tokens.end(), {0, 0});
    first_positions.insert(first_positions.end(), {0, 10 + r});
    first_tables.insert(first_tables.end(), {kNullTable, r});
    if (r % 5 == 4) continue;  // the host has all of it
    drafts.push_back({.verified = AddressOf(&verified[r]),
                      .last_token = AddressOf(&last[r]),
                      .max_accepted = 3,
                      .row = r});
  }
  Shared<CudaUnreadDraft> on_device(drafts);
  Shared<int> ft(first_tokens), fp(first_positions), ff(first_tables),
      t(tokens), p(positions);
  Shared<CudaDraw> d(std::vector<CudaDraw>(kNumRows, {.position = 30}));
  ASSERT_OK(CudaBeginDrafts(on_device.data(), static_cast<int>(drafts.size()),
                            {.first_tokens = ft.data(),
                             .first_positions = fp.data(),
                             .first_token_tables = ff.data(),
                             .tokens = t.data(),
                             .positions = p.data(),
                             .draws = d.data()},
                            stream_.get()));
  Synchronize();
  for (int r = 0; r < kNumRows; ++r) {
    SCOPED_TRACE(r);
    const bool is_unread = r % 5 != 4;
    const int accepted =
        is_unread ? std::clamp(verified[r].num_accepted, 0, 3) : 0;
    const int next = is_unread ? std::max(verified[r].next, 0) : 0;
    EXPECT_EQ(t[r], next);
    EXPECT_EQ(p[r], 10 + r + accepted);
    EXPECT_EQ(d[r].position, 30u + accepted);
    EXPECT_EQ(ft[2 * r + 1], next);
    EXPECT_EQ(fp[2 * r + 1], 10 + r + accepted);
    EXPECT_EQ(ff[2 * r + 1], r);
    const bool feeds_two = accepted == 3;
    EXPECT_EQ(ft[2 * r], feeds_two ? std::max(last[r], 0) : 0);
    EXPECT_EQ(fp[2 * r], feeds_two ? 10 + r + 2 : 0);
    EXPECT_EQ(ff[2 * r], feeds_two ? r : kNullTable);
  }
}

}  // namespace
}  // namespace espalier
