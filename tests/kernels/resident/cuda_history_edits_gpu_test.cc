// Edits made from histories on the device, against CollectEdits: the same lists
// to the bit, for any placement of pages, and for all params together and
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/resident/cuda_history_edits.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cases;
using testing::Download;
using testing::StatusIs;
using testing::Upload;

constexpr float kDead = -std::numeric_limits<float>::infinity();
constexpr TokenEdit kUntouched = {.token = -77, .bias = 5.0f};

struct HistoryCase {
  ScoreProcessors processors;
  std::vector<TokenId> history;
  int num_generated = 0;
  bool is_made = true;
  bool is_dead = false;
};

// A call's arrays on the host.
class Batch {
 public:
  Batch(int vocab_size, int page_size, uint32_t seed)
      : vocab_size_(vocab_size), page_size_(page_size), random_(seed) {}

  void Add(const HistoryCase& row) { rows_.push_back(row); }

  // Runs all rows at once; each has its list, and nothing else is written.
  void ExpectLists() {
    ASSERT_OK(PrepareCudaCollectEdits());
    LayOutPages();
    LayOutRules();
    auto edits = Upload(edits_);
    auto row_edits =
        Upload(std::vector<CudaRowEdits>(rows_.size(), kRowUntouched));
    const auto rows = Upload(edit_rows_);
    const auto params = Upload(params_);
    const auto cums = Upload(cums_);
    const auto logits_tokens = Upload(logits_tokens_);
    const auto positions = Upload(positions_);
    const auto token_tables = Upload(token_tables_);
    const auto tables = Upload(tables_);
    const auto page_tokens = Upload(page_tokens_);
    const CudaHistoryInputs inputs = {
        .histories = {.num_rows = static_cast<int>(rows_.size()),
                      .vocab_size = vocab_size_,
                      .table_stride = stride_,
                      .page_size = page_size_,
                      .cum_log_probs = cums.data(),
                      .logits_tokens = logits_tokens.data(),
                      .positions = positions.data(),
                      .token_tables = token_tables.data(),
                      .tables = tables.data(),
                      .page_tokens = page_tokens.data()},
        .rows = rows.data(),
        .params = params.data()};
    for (int run = 0; run < 2; ++run) {  // the second finds lists in its way
      ASSERT_OK(
          CudaCollectEdits(inputs, row_edits.data(), edits.data(), nullptr));
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      Compare(Download(row_edits), Download(edits));
    }
  }

 private:
  static constexpr CudaRowEdits kRowUntouched = {-3, -4, 0.5f, true};

  // A table each, its pages anywhere; tokens and tables in another order than
  // rows.
  void LayOutPages() {
    const int num_rows = static_cast<int>(rows_.size());
    stride_ = 1;
    int num_pages = 0;
    for (const HistoryCase& row : rows_) {
      const int count = (row.history.size() + page_size_ - 1) / page_size_;
      stride_ = std::max(stride_, count + 1);
      num_pages += count;
    }
    std::vector<int> pages(num_pages + 5);
    std::iota(pages.begin(), pages.end(), 0);
    std::ranges::shuffle(pages, random_);
    page_tokens_.assign(pages.size() * page_size_, 1);
    tables_.assign(num_rows * stride_, pages.back());
    logits_tokens_.resize(num_rows);
    std::iota(logits_tokens_.begin(), logits_tokens_.end(), 0);
    std::ranges::shuffle(logits_tokens_, random_);
    positions_.resize(num_rows);
    token_tables_.resize(num_rows);
    int next_page = 0;
    for (int r = 0; r < num_rows; ++r) {
      const int token = logits_tokens_[r];
      const std::vector<TokenId>& history = rows_[r].history;
      token_tables_[token] = num_rows - 1 - r;
      positions_[token] = static_cast<int>(history.size()) - 1;
      cums_.push_back(rows_[r].is_dead ? kDead : -1.0f);
      int* const table = &tables_[token_tables_[token] * stride_];
      for (size_t i = 0; i < history.size(); ++i) {
        if (i % page_size_ == 0) table[i / page_size_] = pages[next_page++];
        const int page = table[i / page_size_];
        page_tokens_[page * page_size_ + i % page_size_] = history[i];
      }
    }
  }

  void LayOutRules() {
    for (const HistoryCase& row : rows_) {
      if (row.is_made) params_.push_back(ParamsOf(row));
    }
    int params = 0;
    for (const HistoryCase& row : rows_) {
      CudaEditRow& edit_row = edit_rows_.emplace_back();
      if (!row.is_made) continue;
      edit_row.params = params++;
      edit_row.begin = static_cast<int>(edits_.size());
      edits_.resize(edits_.size() + MaxEdits(row.processors, row.history.size(),
                                             vocab_size_),
                    kUntouched);
    }
  }

  CudaEditParams ParamsOf(const HistoryCase& row) {
    const ScoreProcessors& processors = row.processors;
    CudaEditParams params;
    const RowEdits common =
        CollectEdits(processors, {}, row.num_generated, vocab_size_);
    params.common_begin = static_cast<int>(edits_.size());
    edits_.insert(edits_.end(), common.edits.begin(), common.edits.end());
    params.common_end = params.words_begin = static_cast<int>(edits_.size());
    for (const std::vector<TokenId>& word : processors.bad_words) {
      if (word.size() == 1) continue;
      for (const TokenId token : word) edits_.push_back({.token = token});
      edits_.back().banned = true;
    }
    params.words_end = static_cast<int>(edits_.size());
    params.num_prompt_tokens =
        static_cast<int>(row.history.size()) - row.num_generated;
    params.repetition_penalty = processors.repetition_penalty;
    params.frequency_penalty = processors.frequency_penalty;
    params.presence_penalty = processors.presence_penalty;
    params.no_repeat_ngram_size = processors.no_repeat_ngram_size;
    params.is_allow_list = common.is_allow_list ? 1 : 0;
    return params;
  }

  void Compare(const std::vector<CudaRowEdits>& row_edits,
               const std::vector<TokenEdit>& edits) {
    std::vector<TokenEdit> expected = edits_;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const HistoryCase& row = rows_[r];
      const CudaRowEdits& made = row_edits[r];
      if (!row.is_made) {
        EXPECT_EQ(made.begin, kRowUntouched.begin);
        continue;
      }
      RowEdits list;
      if (!row.is_dead) {
        list = CollectEdits(row.processors, row.history, row.num_generated,
                            vocab_size_);
        EXPECT_EQ(made.is_allow_list, list.is_allow_list);
      }
      EXPECT_EQ(made.begin, edit_rows_[r].begin);
      EXPECT_EQ(made.end - made.begin, std::ssize(list.edits));
      EXPECT_EQ(made.repetition_penalty, row.processors.repetition_penalty);
      std::ranges::copy(list.edits, expected.begin() + edit_rows_[r].begin);
      EXPECT_TRUE(std::equal(list.edits.begin(), list.edits.end(),
                             edits.begin() + edit_rows_[r].begin))
          << "row " << r << " of " << row.history.size() << " tokens";
    }
    EXPECT_TRUE(edits == expected) << "something else was written";
  }

  const int vocab_size_;
  const int page_size_;
  std::mt19937 random_;
  std::vector<HistoryCase> rows_;
  int stride_ = 1;
  std::vector<CudaEditRow> edit_rows_;
  std::vector<CudaEditParams> params_;
  std::vector<TokenEdit> edits_;
  std::vector<float> cums_;
  std::vector<int> logits_tokens_;
  std::vector<int> positions_;
  std::vector<int> token_tables_;
  std::vector<int> tables_;
  std::vector<int> page_tokens_;
};

class AnyRows {
 public:
  AnyRows(int vocab_size, uint32_t seed)
      : vocab_size_(vocab_size), random_(seed) {}

  HistoryCase Next(int max_tokens) {
    HistoryCase row;
    // Few tokens, so that n-grams do repeat.
    num_distinct_ = Below(3) == 0 ? vocab_size_ : std::min(2 + Below(9), 11);
    row.history = Tokens(1 + Below(max_tokens));
    row.num_generated = Below(std::ssize(row.history));
    row.is_made = Below(8) > 0;
    row.is_dead = Below(12) == 0;
    AddPenalties(&row.processors);
    AddBans(row.history, &row.processors);
    return row;
  }

 private:
  int Below(int64_t limit) { return static_cast<int>(random_() % limit); }
  // Spread over the vocabulary, its end included.
  TokenId Token() {
    return vocab_size_ - 1 -
           static_cast<int>(int64_t{Below(num_distinct_)} * (vocab_size_ - 1) /
                            std::max(num_distinct_ - 1, 1));
  }
  std::vector<TokenId> Tokens(int count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = Token();
    return tokens;
  }

  void AddPenalties(ScoreProcessors* processors) {
    if (Below(2) == 0) processors->repetition_penalty = 1.3f;
    if (Below(3) == 0) processors->frequency_penalty = 0.3f;
    if (Below(3) == 0) processors->presence_penalty = -0.7f;
    for (TokenId token = Below(5); Below(2) == 0 && token < vocab_size_;
         token += 1 + Below(vocab_size_)) {
      processors->logit_bias.push_back({token, 0.1f * (1 + token % 7)});
    }
  }

  void AddBans(const std::vector<TokenId>& history,
               ScoreProcessors* processors) {
    if (Below(2) == 0) processors->no_repeat_ngram_size = 1 + Below(5);
    for (int words = Below(5); words > 0; --words) {
      std::vector<TokenId> word = Tokens(1 + Below(4));
      // Some are due.
      const size_t prefix = word.size() - 1;
      if (Below(2) == 0 && prefix <= history.size()) {
        std::copy(history.end() - prefix, history.end(), word.begin());
      }
      processors->bad_words.push_back(word);
    }
    if (Below(4) == 0) processors->suppress_tokens = Tokens(3);
    processors->eos_token_ids = {0};
    if (Below(3) == 0) processors->min_new_tokens = Below(40);
    if (Below(6) != 0) return;
    std::vector<TokenId>& allowed = processors->allowed_tokens.emplace().Edit();
    for (int i = 0; i < 9; ++i) allowed.push_back(Token());
    std::ranges::sort(allowed);
    allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
  }

  const int vocab_size_;
  std::mt19937 random_;
  int num_distinct_ = 2;
};

TEST(CudaHistoryEditsTest, AnyRowsHaveTheListsOfTheHost) {
  // The last takes three rounds over the vocabulary.
  for (const int vocab_size : {3, 40, 6000, 131072, 600001}) {
    for (const int page_size : {1, 3, 16}) {
      for (int seed = 0; seed < Cases(6, 1); ++seed) {
        AnyRows rows(vocab_size, 100 * seed + page_size);
        Batch batch(vocab_size, page_size, seed);
        for (int r = 0; r < Cases(90, 12); ++r) batch.Add(rows.Next(60));
        batch.ExpectLists();
        if (HasFailure()) {
          FAIL() << "vocabulary " << vocab_size << ", page size " << page_size
                 << ", seed " << seed;
        }
      }
    }
  }
}

TEST(CudaHistoryEditsTest, LongHistoriesHaveTheListsOfTheHost) {
  for (const int vocab_size : {6000, 128256}) {
    AnyRows rows(vocab_size, 5);
    Batch batch(vocab_size, 16, 6);
    for (int r = 0; r < Cases(40, 3); ++r) batch.Add(rows.Next(4096));
    batch.ExpectLists();
  }
}

// Histories of one repeated token, and rows without processors.
TEST(CudaHistoryEditsTest, RowsAtTheirBoundsHaveTheListsOfTheHost) {
  Batch batch(50, 4, 1);
  batch.Add({.processors = {}, .history = {7}});
  for (const int size : {1, 2, 1023, 1025, 5000}) {
    HistoryCase row = {.processors = {},
                       .history = std::vector<TokenId>(size, 49)};
    row.num_generated = size - 1;
    row.processors.frequency_penalty = 0.1f;
    row.processors.no_repeat_ngram_size = 5;
    batch.Add(row);
    row.processors.no_repeat_ngram_size = 0;
    row.processors.repetition_penalty = 0.5f;
    batch.Add(row);
    row.processors = {};
    row.processors.bad_words = {std::vector<TokenId>(size + 1, 49),
                                std::vector<TokenId>(size, 49),
                                {49, 50}};
    batch.Add(row);
  }
  // Tokens that the vocabulary does not have.
  HistoryCase outside = {.processors = {}, .history = {60, 3, 60, 3}};
  outside.processors.no_repeat_ngram_size = 2;
  outside.processors.repetition_penalty = 2.0f;
  batch.Add(outside);
  batch.ExpectLists();
}

TEST(CudaHistoryEditsTest, NoRowsAreNoCall) {
  EXPECT_THAT(CudaCollectEdits({.histories = {.num_rows = 0, .vocab_size = 9}},
                               nullptr, nullptr, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("edits of 0 rows")));
}

}  // namespace
}  // namespace espalier
