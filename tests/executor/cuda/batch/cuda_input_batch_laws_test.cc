// Invariants of any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "executor/cuda/batch/cuda_input_batch.h"
#include "tests/executor/cuda/any_input_batch.h"

namespace espalier {
namespace {

using testing::AnyInputBatch;

constexpr int kNumBatches = 2000;

template <typename Law>
void ForAnyBatch(const Law& law) {
  AnyInputBatch any(20261120);
  for (int i = 0; i < kNumBatches; ++i) {
    const CudaInputBatch batch = any.Make();
    ASSERT_NO_FATAL_FAILURE(law(batch)) << "batch " << i;
  }
}

TEST(CudaInputBatchLawsTest, EveryRowOfLogitsAndGroupHasOneOfEach) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    const size_t num_logits_rows = batch.num_logits_rows();
    ASSERT_EQ(batch.select_row_groups.size(), num_logits_rows);
    const size_t num_groups = batch.num_groups();
    ASSERT_EQ(batch.groups.size(), num_groups);
    ASSERT_EQ(batch.selections.size(), num_groups);
    ASSERT_EQ(batch.gumbel_selections.size(), num_groups);
    ASSERT_EQ(batch.num_tokens(), batch.num_rows + batch.prompt_tokens.size());
    ASSERT_EQ(batch.prompt_positions.size(), batch.prompt_tokens.size());
    ASSERT_EQ(num_logits_rows,
              batch.num_rows + batch.prompt_logits_tokens.size());
    ASSERT_EQ(batch.prompt_cum_log_probs.size(),
              batch.prompt_logits_tokens.size());
  });
}

// An array that the step reads by row of logits has an entry for each, from the
// first on; otherwise it stays empty.
TEST(CudaInputBatchLawsTest, ArraysByLogitsRowAreWrittenForStepsThatReadThem) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    const size_t num_logits_rows = batch.num_logits_rows();
    const auto size_if = [&](bool is_read) {
      return is_read ? num_logits_rows : 0;
    };
    ASSERT_EQ(batch.row_edits.size(), size_if(batch.has_edits()));
    ASSERT_EQ(batch.edit_rows.size(), size_if(!batch.edit_params.empty()));
    ASSERT_EQ(batch.row_params.size(), size_if(batch.num_draws() > 0));
    ASSERT_EQ(batch.gumbel_rows.size(), size_if(batch.max_gumbel_top_k > 0));
    ASSERT_EQ(batch.gumbel_params.size(), size_if(batch.max_gumbel_top_k > 0));
    ASSERT_EQ(batch.best_row_groups.size(),
              size_if(batch.num_logprob_queries() > 0));
  });
}

// The array's entry of the row of logits; -1 if the step does not read the
// array.
int EntryOf(const std::vector<int>& array, int logits_row) {
  return array.empty() ? -1 : array[logits_row];
}

// Selected for, given noise, drawn from, verified, or nothing of these.
TEST(CudaInputBatchLawsTest, ARowOfLogitsIsChosenForInOneWay) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    const int num_params = static_cast<int>(batch.params.size());
    for (int logits_row = 0; logits_row < batch.num_logits_rows();
         ++logits_row) {
      const int drawn = EntryOf(batch.row_params, logits_row);
      const int gumbel_top_k = EntryOf(batch.gumbel_params, logits_row);
      const int verified = EntryOf(batch.verify_row_params, logits_row);
      ASSERT_LT(std::max({drawn, gumbel_top_k, verified}), num_params);
      const int group_idx = batch.row_groups[logits_row];
      const bool selects =
          group_idx >= 0 && batch.selections[group_idx].num_candidates > 0;
      ASSERT_EQ(selects + (drawn >= 0) + (gumbel_top_k >= 0) + (verified >= 0),
                group_idx >= 0)
          << "row " << logits_row;
      ASSERT_EQ(gumbel_top_k >= 0,
                group_idx >= 0 &&
                    batch.gumbel_selections[group_idx].num_candidates > 0);
    }
  });
}

// LogitsRows one after the other, and as many rows of drafts but one after
// all others, or none; with the edits of theirs where nothing else is
// allowed.
TEST(CudaInputBatchLawsTest, DraftsThatAreVerifiedHaveRowsOfTheirOwn) {
  int num_with_draft_rows = 0;
  ForAnyBatch([&](const CudaInputBatch& batch) {
    std::vector<int> expected(batch.num_verify_rows(), -1);
    for (int s = 0; s < batch.num_verified(); ++s) {
      const CudaVerifySequence& sequence = batch.verify_sequences[s];
      ASSERT_LE(sequence.first_draft + sequence.num_drafts,
                std::ssize(batch.verify_drafts));
      ASSERT_LE(sequence.first_row + sequence.num_drafts + 1,
                batch.num_logits_rows());
      for (int i = 0; i <= sequence.num_drafts; ++i) {
        ASSERT_EQ(std::exchange(expected[sequence.first_row + i], s), -1);
      }
      if (sequence.first_draft_row < 0) continue;
      ASSERT_GE(sequence.first_draft_row, batch.num_logits_rows());
      ASSERT_LE(sequence.first_draft_row + sequence.num_drafts,
                batch.num_verify_rows());
      for (int i = 0; i < sequence.num_drafts; ++i) {
        const int row = sequence.first_draft_row + i;
        ASSERT_EQ(std::exchange(expected[row], s), -1);
        ASSERT_EQ(batch.verify_row_params[row],
                  batch.verify_row_params[sequence.first_row]);
        ++num_with_draft_rows;
      }
    }
    ASSERT_EQ(batch.verify_row_sequences, expected);
    for (int row = 0; batch.has_edits() && batch.num_verified() > 0 &&
                      row < batch.num_logits_rows();
         ++row) {
      ASSERT_EQ(std::memcmp(&batch.verify_row_edits[row], &batch.row_edits[row],
                            sizeof(CudaRowEdits)),
                0);
    }
  });
  EXPECT_GT(num_with_draft_rows, 50);
}

TEST(CudaInputBatchLawsTest, GroupsShareNoPlaceAndLeaveNone) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    int next_row = 0;
    int next_place = 0;
    int next_draw = 0;
    for (int g = 0; g < batch.num_groups(); ++g) {
      const CudaSelectGroup& selection = batch.selections[g];
      const CudaSelectGroup& gumbel_top_k = batch.gumbel_selections[g];
      const CudaResidentGroup& group = batch.groups[g];
      // Padding of beams is ahead of prompts.
      while (next_row < selection.first_row) {
        ASSERT_EQ(batch.row_groups[next_row++], -1);
      }
      ASSERT_EQ(selection.first_row, next_row);
      ASSERT_EQ(selection.first_candidate, next_place);
      ASSERT_EQ(gumbel_top_k.first_candidate, next_place);
      ASSERT_EQ(group.first_draw, group.num_draws > 0 ? next_draw : -1);
      for (int i = 0; i < selection.num_rows; ++i) {
        ASSERT_EQ(batch.row_groups[next_row + i], g);
      }
      next_row += selection.num_rows;
      next_place += selection.num_candidates + gumbel_top_k.num_candidates +
                    group.num_draws;
      next_draw += group.num_draws;
      ASSERT_LE(selection.num_candidates, batch.max_candidates);
      ASSERT_LE(gumbel_top_k.num_candidates, batch.max_gumbel_top_k);
    }
    ASSERT_EQ(next_place, batch.num_candidates);
    ASSERT_EQ(next_draw, batch.num_draws());
    for (int logits_row = next_row; logits_row < batch.num_logits_rows();
         ++logits_row) {
      ASSERT_EQ(batch.row_groups[logits_row], -1);
    }
  });
}

TEST(CudaInputBatchLawsTest, EditsOfARowAreSortedByToken) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    bool restricts = false;
    for (size_t logits_row = 0; logits_row < batch.row_edits.size();
         ++logits_row) {
      if (batch.has_device_edits() && batch.edit_rows[logits_row].params >= 0)
        continue;
      const CudaRowEdits& row = batch.row_edits[logits_row];
      ASSERT_LE(0, row.begin);
      ASSERT_LE(row.begin, row.end);
      ASSERT_LE(row.end, static_cast<int>(batch.edits.size()));
      for (int i = row.begin + 1; i < row.end; ++i) {
        ASSERT_LT(batch.edits[i - 1].token, batch.edits[i].token);
      }
      restricts |= row.is_allow_list;
    }
    ASSERT_EQ(batch.has_edits(),
              restricts || !batch.edits.empty() || !batch.edit_params.empty());
  });
}

// From the end of the device's edits on, one list's room before the other's.
TEST(CudaInputBatchLawsTest, ListsThatTheDeviceMakesHaveRoomOfTheirOwn) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    const int num_edits = static_cast<int>(batch.edits.size());
    int end = batch.shape.max_edits;
    for (const CudaEditRow& row : batch.edit_rows) {
      if (row.params < 0) continue;
      ASSERT_LT(row.params, static_cast<int>(batch.edit_params.size()));
      const CudaEditParams& params = batch.edit_params[row.params];
      ASSERT_LE(row.begin, end - (params.common_end - params.common_begin));
      end = row.begin;
    }
    ASSERT_EQ(batch.num_device_edits, batch.shape.max_edits - end);
    ASSERT_LE(num_edits, end);
    for (const CudaEditParams& params : batch.edit_params) {
      ASSERT_LE(0, params.common_begin);
      ASSERT_LE(params.common_begin, params.common_end);
      ASSERT_LE(params.common_end, params.words_begin);
      ASSERT_LE(params.words_begin, params.words_end);
      ASSERT_LE(params.words_end, num_edits);
      if (params.words_begin == params.words_end) continue;
      ASSERT_TRUE(batch.edits[params.words_end - 1].banned);
    }
  });
}

// Every token except padding is in exactly one row of attention.
TEST(CudaInputBatchLawsTest, EveryTokenAttends) {
  ForAnyBatch([](const CudaInputBatch& batch) {
    int next_query = 0;
    for (const CudaAttentionRow& row : batch.attention_rows) {
      // Padding of beams is ahead of prompts.
      for (; next_query < row.first_query; ++next_query) {
        ASSERT_EQ(batch.token_tables[next_query], AnyInputBatch::kMaxSlots);
      }
      ASSERT_EQ(row.first_query, next_query);
      for (int i = 0; i < row.num_queries; ++i) {
        ASSERT_EQ(batch.token_tables[next_query + i], row.table);
      }
      next_query += row.num_queries;
      ASSERT_LE(row.max_positions, batch.shape.max_positions);
    }
    for (int t = next_query; t < batch.num_tokens(); ++t) {
      ASSERT_EQ(batch.token_tables[t], AnyInputBatch::kMaxSlots);
    }
  });
}

// With an encoder each token but those of padding attends to its source in
// one row, and tokens of one source that follow each other in the same.
TEST(CudaInputBatchLawsTest, EveryTokenAttendsToItsSource) {
  int num_shared = 0;
  ForAnyBatch([&](const CudaInputBatch& batch) {
    if (!batch.HasReaders(CudaArrayReaders::kWithSources)) {
      ASSERT_TRUE(batch.cross_rows.empty() && batch.cross_positions.empty());
      return;
    }
    ASSERT_EQ(batch.cross_positions.size(), batch.num_tokens());
    std::vector<const CudaAttentionRow*> rows(batch.num_tokens());
    const CudaAttentionRow* before = nullptr;
    for (const CudaAttentionRow& row : batch.cross_rows) {
      ASSERT_TRUE(row.sees_all && row.is_complete);
      ASSERT_EQ(row.kv_begin, 0);
      for (int i = 0; i < row.num_queries; ++i) {
        const int token = row.first_query + i;
        ASSERT_EQ(std::exchange(rows[token], &row), nullptr);
        ASSERT_EQ(batch.cross_positions[token], row.max_positions - 1);
      }
      num_shared += row.num_queries > 1;
      ASSERT_TRUE(before == nullptr || before->table != row.table ||
                  before->first_query + before->num_queries < row.first_query);
      before = &row;
    }
    for (const CudaAttentionRow& row : batch.attention_rows) {
      for (int i = 0; i < row.num_queries; ++i) {
        const CudaAttentionRow& cross = *rows[row.first_query + i];
        ASSERT_EQ(cross.max_positions,
                  AnyInputBatch::SourceLengthOf(cross.table));
        // Its group's first.
        ASSERT_LE(cross.table, row.table);
        ASSERT_LT(row.table, cross.table + AnyInputBatch::kMaxWidth);
      }
    }
    for (int token = 0; token < batch.num_tokens(); ++token) {
      const bool is_padding =
          batch.token_tables[token] == AnyInputBatch::kMaxSlots;
      ASSERT_EQ(rows[token] == nullptr, is_padding);
      ASSERT_EQ(batch.cross_positions[token] == -1, is_padding);
    }
  });
  EXPECT_GT(num_shared, 500);
}

}  // namespace
}  // namespace espalier
