// Rows of logits after their edits on the device, against WriteEditedLogits:
// the same logits to the bit, for any placement of pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/logits/edited_logits.h"
#include "kernels/resident/cuda_edited_rows.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cases;
using testing::Download;
using testing::StatusIs;
using testing::Upload;

constexpr float kInfinite = std::numeric_limits<float>::infinity();

bool SameLogits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return x == y || (std::isnan(x) && std::isnan(y));
  });
}

// Rows of one rule; some have bans alone, some are not edited or dead.
class EditedBatch {
 public:
  EditedBatch(int num_rows, int vocab_size, const TimestampRule& rule,
              uint32_t seed)
      : rule_(rule),
        vocab_size_(vocab_size),
        page_size_(1 + static_cast<int>(seed % 16)),
        stride_(kMaxPositions / page_size_ + 1),
        random_(seed),
        logits_(size_t(num_rows) * vocab_size),
        tables_(size_t(num_rows) * stride_),
        page_tokens_(tables_.size() * page_size_),
        rows_(num_rows),
        cums_(num_rows, -1.0f),
        logits_tokens_(num_rows),
        positions_(num_rows),
        token_tables_(num_rows),
        row_edits_(num_rows),
        generated_(num_rows) {
    std::iota(tables_.begin(), tables_.end(), 0);
    std::ranges::shuffle(tables_, random_);
    std::iota(logits_tokens_.begin(), logits_tokens_.end(), 0);
    std::ranges::shuffle(logits_tokens_, random_);
    for (int r = 0; r < num_rows; ++r) AddRow(r);
  }

  // Returns the number of rows that are left with times alone.
  int ExpectLogits(bool has_edits) {
    auto logits = Upload(logits_);
    const auto rows = Upload(rows_);
    const auto rules = Upload(std::vector<TimestampRule>{rule_});
    const auto cums = Upload(cums_);
    const auto logits_tokens = Upload(logits_tokens_);
    const auto positions = Upload(positions_);
    const auto token_tables = Upload(token_tables_);
    const auto tables = Upload(tables_);
    const auto page_tokens = Upload(page_tokens_);
    const auto row_edits = Upload(row_edits_);
    const auto edits = Upload(edits_);
    EXPECT_OK(
        CudaEditRows({.histories = {.num_rows = static_cast<int>(rows_.size()),
                                    .vocab_size = vocab_size_,
                                    .table_stride = stride_,
                                    .page_size = page_size_,
                                    .cum_log_probs = cums.data(),
                                    .logits_tokens = logits_tokens.data(),
                                    .positions = positions.data(),
                                    .token_tables = token_tables.data(),
                                    .tables = tables.data(),
                                    .page_tokens = page_tokens.data()},
                      .logits = logits.data(),
                      .rows = rows.data(),
                      .rules = rules.data(),
                      .row_edits = has_edits ? row_edits.data() : nullptr,
                      .edits = edits.data()},
                     nullptr));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<float> found = Download(logits);
    int num_times = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const std::vector<float> expected = Expected(r, has_edits);
      EXPECT_TRUE(SameLogits(expected, RowOf(found, r))) << "row " << r;
      const auto times = expected.begin() + rule_.first_time;
      const auto is_out = [](float x) { return x == -kInfinite; };
      num_times += std::all_of(expected.begin(), times, is_out) &&
                   !std::all_of(times, expected.end(), is_out);
    }
    return num_times;
  }

 private:
  static constexpr int kMaxPositions = 410;

  int Below(int n) { return static_cast<int>(random_() % n); }
  std::span<const float> RowOf(const std::vector<float>& all, int r) const {
    return std::span(all).subspan(size_t(r) * vocab_size_, vocab_size_);
  }

  void AddRow(int r) {
    AddLogits(r);
    const int num_generated = Below(Below(3) == 0 ? 3 : 400);
    rows_[r] = {.num_prompt_tokens = Below(6) == 0 ? -1 : 1 + Below(6),
                .rule = Below(5) == 0 ? -1 : 0};
    if (Below(9) == 0) cums_[r] = -kInfinite;
    AddHistory(r, std::max(rows_[r].num_prompt_tokens, 1), num_generated);
    row_edits_[r].begin = static_cast<int>(edits_.size());
    for (int t = Below(7); t < vocab_size_; t += 1 + Below(97)) {
      edits_.push_back({.token = t, .banned = true});
    }
    row_edits_[r].end = static_cast<int>(edits_.size());
  }

  // Times are likelier or not; some logits are -inf or no number.
  void AddLogits(int r) {
    std::normal_distribution<float> normal(0, Below(2) == 0 ? 0.4f : 4.0f);
    const float lift = static_cast<float>(Below(8)) - 4;
    for (int t = 0; t < vocab_size_; ++t) {
      float& x = logits_[size_t(r) * vocab_size_ + t];
      x = normal(random_) + (t >= rule_.first_time ? lift : 0.0f);
      if (Below(50) == 0) x = Below(5) == 0 ? NAN : -kInfinite;
    }
  }

  void AddHistory(int r, int num_prompt_tokens, int num_generated) {
    std::vector<TokenId> history(num_prompt_tokens, vocab_size_ - 1);
    for (int i = 0; i < num_generated; ++i) {
      const bool is_text = Below(2) == 0;
      generated_[r].push_back(
          is_text ? Below(rule_.first_time)
                  : rule_.first_time + Below(vocab_size_ - rule_.first_time));
    }
    history.insert(history.end(), generated_[r].begin(), generated_[r].end());
    const int token = logits_tokens_[r];
    positions_[token] = static_cast<int>(history.size()) - 1;
    token_tables_[token] = r;
    for (size_t i = 0; i < history.size(); ++i) {
      const int page = tables_[size_t(r) * stride_ + i / page_size_];
      page_tokens_[size_t(page) * page_size_ + i % page_size_] = history[i];
    }
  }

  std::vector<float> Expected(int r, bool has_edits) const {
    const std::span<const float> row = RowOf(logits_, r);
    std::vector<float> expected(row.begin(), row.end());
    if (rows_[r].num_prompt_tokens < 0 || cums_[r] == -kInfinite)
      return expected;
    LogitEdits edits;
    if (has_edits) {
      edits.edits = std::span(edits_).subspan(
          row_edits_[r].begin, row_edits_[r].end - row_edits_[r].begin);
    }
    if (rows_[r].rule >= 0) {
      edits.rule = &rule_;
      edits.state = TimestampStateOf(rule_, generated_[r]);
    }
    WriteEditedLogits(row, edits, expected);
    return expected;
  }

  const TimestampRule rule_;
  const int vocab_size_, page_size_, stride_;
  std::mt19937 random_;
  std::vector<float> logits_;
  std::vector<int> tables_, page_tokens_;
  std::vector<CudaEditedRow> rows_;
  std::vector<float> cums_;
  std::vector<int> logits_tokens_, positions_, token_tables_;
  std::vector<CudaRowEdits> row_edits_;
  std::vector<TokenEdit> edits_;
  std::vector<std::vector<TokenId>> generated_;
};

TEST(CudaEditedRowsTest, AreThoseOfTheHost) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  int num_times = 0;
  for (int trial = 0; trial < Cases(200, 6); ++trial) {
    SCOPED_TRACE(trial);
    const bool is_large = trial % 10 == 0;
    const int vocab_size = is_large ? 51865 : 100 + below(3000);
    TimestampRule rule;
    rule.first_time = is_large ? 50364 : 20 + below(vocab_size - 30);
    rule.end = is_large ? 50257 : below(rule.first_time - 1);
    rule.no_timestamps = rule.first_time - 1;
    rule.last_first_time =
        below(3) > 0 ? rule.first_time + 5 : std::numeric_limits<int>::max();
    rule.after_prefix = below(4) == 0;
    const int num_rows = is_large ? Cases(80, 8) : 1 + below(20);
    num_times += EditedBatch(num_rows, vocab_size, rule, random())
                     .ExpectLogits(/*has_edits=*/trial % 7 != 0);
  }
  EXPECT_GT(num_times, 5);
}

TEST(CudaEditedRowsTest, RefusesWhatIsNotPossible) {
  EXPECT_THAT(
      CudaEditRows({.histories = {.num_rows = 0, .vocab_size = 10}}, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "edits of 0 rows of 10 tokens with pages of 1 are not "
               "possible"));
}

}  // namespace
}  // namespace espalier
