// Shared prefixes in a step's attention: pages that all rows of a group name,
// as paths of beams and samples with drafts do. Needs no device.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/page_count.h"
#include "executor/cuda/step/cuda_step_builder.h"
#include "kernels/attention/cuda_attention.h"
#include "pages/page_table.h"
#include "tests/executor/cuda/step_builder_fixture.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

// Rows of several tokens whose first pages are the same, of long prompts.
class CudaStepBuilderPagesTest : public StepBuilderFixture {
 protected:
  CudaStepBuilderPagesTest()
      : StepBuilderFixture(WithLongTables(), kBuilderPageSize) {}

  // Rows of a group that feed three tokens from `first_positions` on, with so
  // many rows of logits. Of their pages the first `num_shared` are the same.
  void AddRows(std::span<const int> first_positions, int num_shared,
               int num_logits = 3) {
    StepPlan& plan = source_.plan;
    const int num_rows = static_cast<int>(first_positions.size());
    for (int row = 0; row < num_rows; ++row) {
      source_.AddRow(std::vector<TokenId>{8, 5, 6}, num_logits);
      plan.rows.back().first_position = first_positions[row];
      plan.page_indices.resize(plan.page_indptr[plan.page_indptr.size() - 2]);
      const int num_pages = static_cast<int>(
          NumPages(first_positions[row] + 3, kBuilderPageSize));
      for (int page = 0; page < num_pages; ++page) {
        plan.page_indices.push_back(
            PageId{page < num_shared ? page : 64 * (row + 1) + page});
      }
      plan.page_indptr.back() = static_cast<int>(plan.page_indices.size());
    }
    auto params = std::make_shared<SelectionParams>();
    PlanSelection& selection =
        source_.AddSelection(RequestId{0}, num_rows, num_rows, params);
    selection.first_logits = plan.num_logits - num_logits * num_rows;
    selection.num_generated = 3;
    DrawSelection& draws = selection.Choose<DrawSelection>();
    draws.row_num_generated.assign(num_rows, 3);
    for (int row = 0; row < num_rows; ++row) {
      draws.samples.push_back(row);
      draws.drafts.tokens.push_back({7 - num_logits, 6});
      draws.drafts.tokens.back().resize(num_logits - 1);
    }
  }

  // Returns the work items of the first step's attention.
  std::vector<CudaAttentionItem> Items() {
    CudaDelta delta(memory_->words());
    EXPECT_OK(
        builder_->Build(source_.Take(), absl::OkStatus(), &delta).status());
    const int64_t first =
        reinterpret_cast<const int*>(memory_->arrays().items) -
        memory_->words();
    std::map<int64_t, int> sent;
    for (const CudaStagedWrite& write : delta.segments()) {
      for (int i = 0; i < write.count; ++i) {
        sent[write.target + i - first] = delta.payload()[write.source + i];
      }
    }
    constexpr int kItemWords = sizeof(CudaAttentionItem) / sizeof(int);
    std::vector<CudaAttentionItem> items;
    for (int64_t at = 0; sent.contains(at); at += kItemWords) {
      std::array<int, kItemWords> words;
      for (int i = 0; i < kItemWords; ++i) words[i] = sent[at + i];
      items.push_back(std::bit_cast<CudaAttentionItem>(words));
    }
    EXPECT_FALSE(items.empty());
    return items;
  }

 private:
  static CudaStepLimits WithLongTables() {
    CudaStepLimits limits = kBuilderLimits;
    limits.table_stride = 64;
    return limits;
  }
};

// Positions of this step are not complete: 592 are before all rows.
TEST_F(CudaStepBuilderPagesTest, RowsOfAGroupReadPagesOfAllOnce) {
  AddRows(std::vector<int>{608, 600}, 37);
  int num_positions = 0;
  for (const CudaAttentionItem& item : Items()) {
    EXPECT_EQ(item.num_queries, item.kv_begin < 592 ? 6 : 3);
    if (item.kv_begin >= 592) continue;
    EXPECT_LE(item.kv_end, 592);
    num_positions += item.kv_end - item.kv_begin;
  }
  EXPECT_EQ(num_positions, 592);
}

TEST_F(CudaStepBuilderPagesTest, RowsThatBeginInSharedPagesReadThose) {
  AddRows(std::vector<int>{608, 570}, 38);
  for (const CudaAttentionItem& item : Items()) {
    EXPECT_EQ(item.num_queries, item.kv_begin < 560 ? 6 : 3);
  }
}

TEST_F(CudaStepBuilderPagesTest, RowsReadTheirOwnPagesByThemselves) {
  AddRows(std::vector<int>{608, 600}, 0);
  for (const CudaAttentionItem& item : Items()) EXPECT_EQ(item.num_queries, 3);
}

// There would be more queries of runs than attention has room for.
TEST_F(CudaStepBuilderPagesTest, RowsWithTokensWithoutLogitsReadByThemselves) {
  AddRows(std::vector<int>{608, 600}, 37, 2);
  for (const CudaAttentionItem& item : Items()) EXPECT_EQ(item.num_queries, 3);
}

TEST_F(CudaStepBuilderPagesTest, ARowAloneSharesNothing) {
  AddRows(std::vector<int>{608}, 38);
  for (const CudaAttentionItem& item : Items()) EXPECT_EQ(item.num_queries, 3);
}

}  // namespace
}  // namespace espalier::testing
