// CudaBatchArrays: the arrays of a step's batch that the host alone plans and
// kernels read. Each is declared once, here, with its size and the steps that
// read it. Code that treats all arrays alike iterates over the list:
//
//   CudaBatchArrays<HostArray>    host values of one step: CudaInputBatch
//   CudaBatchArrays<DeviceArray>  pointers to device memory: CudaStepArrays
//   CudaBatchArrays<SentArray>    shadow copies of what the device has:
//                                 CudaBatchUploader
//
//   ForEachBatchArray(
//       [&](const CudaArrayInfo& info, auto& sent, const auto& host) { ... },
//       sent, batch);
//
// A new input of the batch takes a member and a line here, its values
// (cuda_input_batch.cc), and the kernel that reads it
// (executor/cuda/cuda_graph_runner.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "base/pushdown_tables.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "kernels/attention/cuda_attention_plan.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/gumbel_topk/cuda_gumbel_topk.h"
#include "kernels/resident/cuda_edited_rows.h"
#include "kernels/resident/cuda_history_edits.h"
#include "kernels/resident/cuda_resident.h"
#include "kernels/resident/cuda_step_logprobs.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/select/cuda_select.h"
#include "kernels/verify/cuda_verify.h"

namespace espalier {

// kSize entries; 0: the size depends on the batch.
template <typename T, size_t kSize = 0>
using HostArray =
    std::conditional_t<kSize == 0, std::vector<T>, std::array<T, kSize>>;
template <typename T, size_t = 0>
using DeviceArray = T*;
template <typename T, size_t = 0>
using SentArray = ShadowedArray<T>;

// Steps that read an array. In other steps it is neither written nor sent.
enum class CudaArrayReaders {
  kAll,
  kWithEdits,        // some row has edits of scores
  kWithDeviceEdits,  // the device builds some row's edits from histories
  kWithEditedRows,   // some row is selected from after its edits
  kWithDraws,
  kWithGumbelTopK,  // rows
  kWithLogprobs,    // requested
  kWithVerified,    // drafts, by rejection
  kWithSources,     // encoder-decoder models
  kWithMasks,       // some row has a token mask
};

struct CudaArrayInfo {
  const char* name;  // in a message: "7 draws"
  // Maximum number of entries: a limit of steps, if any, plus `more`.
  int CudaStepLimits::*limit = nullptr;
  int more = 0;
  CudaArrayReaders readers = CudaArrayReaders::kAll;
  // The array has an entry for each row of logits, InactiveEntry() by default.
  bool by_logits_row = false;
  int times = 1;  // as many for each of the limit

  constexpr int64_t max_size(const CudaStepLimits& limits) const {
    return (limit == nullptr ? 0 : int64_t{limits.*limit}) * times + more;
  }
};

template <typename T>
constexpr T InactiveEntry() {
  if constexpr (std::is_same_v<T, int>) {
    return -1;  // an index
  } else {
    return T();
  }
}

template <template <typename T, size_t kSize = 0> typename Array>
struct CudaBatchArrays {
  Array<int, 1> group_count{};
  Array<CudaResidentGroup> groups{};
  Array<CudaSelectGroup> selections{};  // by group
  Array<int> row_groups{};              // by row of logits
  // By row of logits: row_groups if CudaSelect selects for the group, else -1.
  // CudaSelect skips rows that are sampled from or get noise.
  Array<int> select_row_groups{};
  Array<TokenId> eos_token_ids{};
  Array<int> token_tables{};  // by token
  Array<SamplingParams> params{};

  Array<CudaRowEdits> row_edits{};  // by row of logits
  // Lists that the device builds are at the end of its array.
  Array<TokenEdit> edits{};
  Array<CudaEditRow> edit_rows{};  // by row of logits
  Array<CudaEditParams> edit_params{};

  Array<CudaMaskRow> mask_rows{};  // by row of logits
  // Places of rows with stacks: a frame with the state, count and height of
  // PushdownPlace, and its frames.
  Array<PushdownFrame> mask_frames{};

  Array<CudaEditedRow> edited_rows{};  // by row of logits
  Array<TimestampRule> rules{};

  Array<int, 1> draw_count{};
  Array<int> row_params{};  // by row of logits

  // By group: `selections`, but only Gumbel top-k has candidates.
  Array<CudaSelectGroup> gumbel_selections{};
  Array<CudaGumbelRow> gumbel_rows{};  // by row of logits
  Array<int> gumbel_params{};          // by row of logits

  Array<CudaLogprobCounts, 1> logprob_counts{};
  Array<CudaLogprobGroup> asking_groups{};
  Array<CudaSelectGroup> best_groups{};  // one row each
  Array<int> best_row_groups{};          // by row of logits

  // Drafts that are verified by rejection (cuda_verify_rows.h). Their rows are
  // all rows of logits of the step, then all rows of drafts.
  Array<int, 1> verify_count{};
  Array<CudaVerifySequence> verify_sequences{};
  Array<TokenId> verify_drafts{};
  Array<int> verify_row_sequences{};  // by row
  Array<int> verify_row_params{};     // by row
  // By row: address of its logits; 0: among the step's. An integer, so that it
  // is sent as words.
  Array<uint64_t> verify_row_addresses{};
  Array<CudaRowEdits> verify_row_edits{};  // by row

  // By token: the last position of its source; -1: padding.
  Array<int> cross_positions{};
};

// The work list of attention, as CudaAttentionWork has it.
template <template <typename T, size_t kSize = 0> typename Array>
struct CudaAttentionArrays {
  Array<CudaAttentionItem> items{};
  Array<int, 2> item_counts{};
  Array<int> partial_indptr{};
};

// Calls fn(info, array of each of `all`...) for every array, in this order.
template <typename Fn, typename... All>
constexpr void ForEachBatchArray(const Fn& fn, All&&... all) {
  using Info = CudaArrayInfo;
  using enum CudaArrayReaders;
  constexpr auto kRows = &CudaStepLimits::max_rows;
  constexpr auto kTokens = &CudaStepLimits::max_tokens;
  constexpr auto kEos = &CudaStepLimits::max_eos_token_ids;
  constexpr auto kEdits = &CudaStepLimits::max_edits;
  const auto by_row = [](const char* name, CudaArrayReaders readers = kAll) {
    return Info{name, kRows, 0, readers, /*by_logits_row=*/true};
  };
  fn(Info{"counts of groups", nullptr, 1}, all.group_count...);
  fn(Info{"groups", kRows}, all.groups...);
  fn(Info{"selections", kRows}, all.selections...);
  fn(by_row("rows of logits"), all.row_groups...);
  fn(by_row("rows to select from"), all.select_row_groups...);
  fn(Info{"EOS ids", kEos}, all.eos_token_ids...);
  fn(Info{"tokens", kTokens}, all.token_tables...);
  fn(Info{"sampling parameters", kRows}, all.params...);

  fn(by_row("edited rows", kWithEdits), all.row_edits...);
  fn(Info{"edits", kEdits, 0, kWithEdits}, all.edits...);
  fn(by_row("rows with histories", kWithDeviceEdits), all.edit_rows...);
  fn(Info{"parameters of edits", kRows, 0, kWithDeviceEdits},
     all.edit_params...);

  fn(by_row("rows with masks", kWithMasks), all.mask_rows...);
  fn(Info{.name = "frames of stacks",
          .limit = kRows,
          .readers = kWithMasks,
          .times = 1 + PushdownPlace::kMaxDepth},
     all.mask_frames...);

  fn(by_row("rows after edits", kWithEditedRows), all.edited_rows...);
  fn(Info{"rules of times", kRows, 0, kWithEditedRows}, all.rules...);

  fn(Info{"counts of draws", nullptr, 1, kWithDraws}, all.draw_count...);
  fn(by_row("rows to draw from", kWithDraws), all.row_params...);

  fn(Info{"selections with noise", kRows, 0, kWithGumbelTopK},
     all.gumbel_selections...);
  fn(by_row("rows with noise", kWithGumbelTopK), all.gumbel_rows...);
  fn(by_row("parameters of noise", kWithGumbelTopK), all.gumbel_params...);

  fn(Info{"counts of log-probabilities", nullptr, 1, kWithLogprobs},
     all.logprob_counts...);
  fn(Info{"groups that ask", kRows, 0, kWithLogprobs}, all.asking_groups...);
  fn(Info{"rows of best tokens", kRows, 0, kWithLogprobs}, all.best_groups...);
  fn(by_row("rows that ask", kWithLogprobs), all.best_row_groups...);

  fn(Info{"counts of drafts", nullptr, 1, kWithVerified}, all.verify_count...);
  fn(Info{"rows with drafts", kRows, 0, kWithVerified},
     all.verify_sequences...);
  fn(Info{"drafted tokens", kRows, 0, kWithVerified}, all.verify_drafts...);
  fn(Info{"rows to verify", kRows, 0, kWithVerified},
     all.verify_row_sequences...);
  fn(Info{"parameters of rows to verify", kRows, 0, kWithVerified},
     all.verify_row_params...);
  fn(Info{"addresses of rows to verify", kRows, 0, kWithVerified},
     all.verify_row_addresses...);
  fn(Info{"edits of rows to verify", kRows, 0, kWithVerified},
     all.verify_row_edits...);

  fn(Info{"positions of sources", kTokens, 0, kWithSources},
     all.cross_positions...);
}

template <typename Fn, typename... All>
constexpr void ForEachAttentionArray(const Fn& fn, All&&... all) {
  using Info = CudaArrayInfo;
  fn(Info{"items", &CudaStepLimits::max_items}, all.items...);
  fn(Info{"counts of items", nullptr, 2}, all.item_counts...);
  fn(Info{"partial results", &CudaStepLimits::max_tokens, 1},
     all.partial_indptr...);
}

}  // namespace espalier
