// What is true of the image of any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "executor/cuda/cuda_input_batch.h"
#include "tests/executor/cuda/any_batch_image.h"

namespace espalier {
namespace {

using testing::AnyBatchImage;

constexpr int kNumImages = 2000;

template <typename Law>
void ForAnyImage(const Law& law) {
  AnyBatchImage any(20261120);
  for (int i = 0; i < kNumImages; ++i) {
    const CudaInputBatch image = any.Make();
    ASSERT_NO_FATAL_FAILURE(law(image)) << "image " << i;
  }
}

TEST(CudaBatchImageLawsTest, EveryLineAndGroupHasOneOfEach) {
  ForAnyImage([](const CudaInputBatch& image) {
    const size_t num_logits_rows = image.num_logits_rows();
    ASSERT_EQ(image.select_row_groups.size(), num_logits_rows);
    const size_t num_groups = image.num_groups();
    ASSERT_EQ(image.groups.size(), num_groups);
    ASSERT_EQ(image.selections.size(), num_groups);
    ASSERT_EQ(image.perturbed_selections.size(), num_groups);
    ASSERT_EQ(image.num_tokens(), image.num_rows + image.prompt_tokens.size());
    ASSERT_EQ(image.prompt_positions.size(), image.prompt_tokens.size());
    ASSERT_EQ(num_logits_rows,
              image.num_rows + image.prompt_logits_tokens.size());
    ASSERT_EQ(image.prompt_cum_log_probs.size(),
              image.prompt_logits_tokens.size());
  });
}

// Where the step reads an array by line, it has an entry for each, from the
// first on; where it does not, nothing is spent on it.
TEST(CudaBatchImageLawsTest, ArraysByLineAreWrittenForStepsThatReadThem) {
  ForAnyImage([](const CudaInputBatch& image) {
    const size_t num_logits_rows = image.num_logits_rows();
    const auto size_if = [&](bool is_read) {
      return is_read ? num_logits_rows : 0;
    };
    ASSERT_EQ(image.row_edits.size(), size_if(image.has_edits()));
    ASSERT_EQ(image.edit_rows.size(), size_if(!image.edit_rules.empty()));
    ASSERT_EQ(image.row_params.size(), size_if(image.num_draws() > 0));
    ASSERT_EQ(image.perturbed_rows.size(), size_if(image.max_perturbed > 0));
    ASSERT_EQ(image.perturbed_params.size(), size_if(image.max_perturbed > 0));
    ASSERT_EQ(image.best_row_groups.size(),
              size_if(image.num_logprob_queries() > 0));
  });
}

// The array's entry of the line; -1 if the step does not read the array.
int EntryOf(const std::vector<int>& array, int line) {
  return array.empty() ? -1 : array[line];
}

// Selected for, perturbed, drawn from, or nothing of these.
TEST(CudaBatchImageLawsTest, ALineIsChosenForInOneWay) {
  ForAnyImage([](const CudaInputBatch& image) {
    const int num_params = static_cast<int>(image.params.size());
    for (int line = 0; line < image.num_logits_rows(); ++line) {
      const int drawn = EntryOf(image.row_params, line);
      const int gumbel_top_k = EntryOf(image.perturbed_params, line);
      ASSERT_LT(std::max(drawn, gumbel_top_k), num_params);
      const int group_idx = image.row_groups[line];
      const bool selects =
          group_idx >= 0 && image.selections[group_idx].num_candidates > 0;
      ASSERT_EQ(selects + (drawn >= 0) + (gumbel_top_k >= 0), group_idx >= 0)
          << "line " << line;
      ASSERT_EQ(gumbel_top_k >= 0,
                group_idx >= 0 &&
                    image.perturbed_selections[group_idx].num_candidates > 0);
    }
  });
}

TEST(CudaBatchImageLawsTest, GroupsShareNoPlaceAndLeaveNone) {
  ForAnyImage([](const CudaInputBatch& image) {
    int next_line = 0;
    int next_place = 0;
    int next_draw = 0;
    for (int g = 0; g < image.num_groups(); ++g) {
      const CudaSelectGroup& selection = image.selections[g];
      const CudaSelectGroup& gumbel_top_k = image.perturbed_selections[g];
      const CudaResidentGroup& group = image.groups[g];
      ASSERT_EQ(selection.first_row, next_line);
      ASSERT_EQ(selection.first_candidate, next_place);
      ASSERT_EQ(gumbel_top_k.first_candidate, next_place);
      ASSERT_EQ(group.first_draw, group.num_draws > 0 ? next_draw : -1);
      for (int i = 0; i < selection.num_rows; ++i) {
        ASSERT_EQ(image.row_groups[next_line + i], g);
      }
      next_line += selection.num_rows;
      next_place += selection.num_candidates + gumbel_top_k.num_candidates +
                    group.num_draws;
      next_draw += group.num_draws;
      ASSERT_LE(selection.num_candidates, image.max_candidates);
      ASSERT_LE(gumbel_top_k.num_candidates, image.max_perturbed);
    }
    ASSERT_EQ(next_place, image.num_candidates);
    ASSERT_EQ(next_draw, image.num_draws());
    for (int line = next_line; line < image.num_logits_rows(); ++line) {
      ASSERT_EQ(image.row_groups[line], -1);
    }
  });
}

TEST(CudaBatchImageLawsTest, EditsOfALineAreSortedByToken) {
  ForAnyImage([](const CudaInputBatch& image) {
    bool restricts = false;
    for (size_t line = 0; line < image.row_edits.size(); ++line) {
      if (image.has_device_edits() && image.edit_rows[line].rule >= 0) continue;
      const CudaRowEdits& row = image.row_edits[line];
      ASSERT_LE(0, row.begin);
      ASSERT_LE(row.begin, row.end);
      ASSERT_LE(row.end, static_cast<int>(image.edits.size()));
      for (int i = row.begin + 1; i < row.end; ++i) {
        ASSERT_LT(image.edits[i - 1].token, image.edits[i].token);
      }
      restricts |= row.is_allow_list;
    }
    ASSERT_EQ(image.has_edits(),
              restricts || !image.edits.empty() || !image.edit_rules.empty());
  });
}

// From the end of the device's edits on, one list's room before the other's.
TEST(CudaBatchImageLawsTest, ListsThatTheDeviceMakesHaveRoomOfTheirOwn) {
  ForAnyImage([](const CudaInputBatch& image) {
    const int num_edits = static_cast<int>(image.edits.size());
    int end = image.shape.max_edits;
    for (const CudaEditRow& row : image.edit_rows) {
      if (row.rule < 0) continue;
      ASSERT_LT(row.rule, static_cast<int>(image.edit_rules.size()));
      const CudaEditRule& rule = image.edit_rules[row.rule];
      ASSERT_LE(row.begin, end - (rule.common_end - rule.common_begin));
      end = row.begin;
    }
    ASSERT_EQ(image.num_device_edits, image.shape.max_edits - end);
    ASSERT_LE(num_edits, end);
    for (const CudaEditRule& rule : image.edit_rules) {
      ASSERT_LE(0, rule.common_begin);
      ASSERT_LE(rule.common_begin, rule.common_end);
      ASSERT_LE(rule.common_end, rule.words_begin);
      ASSERT_LE(rule.words_begin, rule.words_end);
      ASSERT_LE(rule.words_end, num_edits);
      if (rule.words_begin == rule.words_end) continue;
      ASSERT_TRUE(image.edits[rule.words_end - 1].banned);
    }
  });
}

// Attention is asked for once about every token but those of padding.
TEST(CudaBatchImageLawsTest, EveryTokenAttends) {
  ForAnyImage([](const CudaInputBatch& image) {
    int next_query = 0;
    for (const CudaAttentionRow& row : image.attention_rows) {
      ASSERT_EQ(row.first_query, next_query);
      for (int i = 0; i < row.num_queries; ++i) {
        ASSERT_EQ(image.token_tables[next_query + i], row.table);
      }
      next_query += row.num_queries;
      ASSERT_LE(row.max_positions, image.shape.max_positions);
    }
    for (int t = next_query; t < image.num_tokens(); ++t) {
      ASSERT_EQ(image.token_tables[t], AnyBatchImage::kMaxSlots);
    }
  });
}

}  // namespace
}  // namespace espalier
