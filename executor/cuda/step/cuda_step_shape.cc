#include "executor/cuda/step/cuda_step_shape.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "executor/cuda/batch/cuda_input_batch.h"

namespace espalier {
namespace {

// The smallest bound of candidates and tokens: 16 cost no more than fewer.
constexpr int kMinBound = 16;

int PowerOfTwoFrom(int value) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(value)));
}

// Returns a bound of `count` that takes few distinct values, so that there are
// few graphs: a power of two up to `most`; 0 for 0.
int GraphBound(int count, int most) {
  if (count == 0) return 0;
  return std::min(PowerOfTwoFrom(std::max(count, kMinBound)),
                  std::max(count, most));
}

// Returns the shape that needs the most scratch.
CudaStepShape LargestShape(const CudaStepLimits& limits) {
  return {.num_logits_rows = limits.max_rows,
          .max_groups = limits.max_rows,
          .max_candidates = limits.max_candidates,
          .max_draws = limits.max_rows,
          .max_gumbel_top_k = limits.max_candidates,
          .max_best = limits.max_best_tokens,
          .max_verified = limits.max_rows,
          .num_verify_rows = limits.max_rows,
          .has_edits = true};
}

CudaSelectPlace PlaceOf(const CudaSelectGroup& group, size_t group_idx) {
  return {.group_idx = static_cast<int>(group_idx),
          .first_row = group.first_row,
          .num_rows = group.num_rows,
          .num_candidates = group.num_candidates,
          .first_candidate = group.first_candidate};
}

// Adds the ranges that a selection indexes to `audit`, for groups with
// candidates; returns the first excess over its bounds.
template <typename Layout>
std::string AuditGroups(const std::vector<CudaSelectGroup>& groups,
                        const CudaSelectBounds& bounds, const Layout& layout,
                        LayoutAudit* audit) {
  for (size_t i = 0; i < groups.size(); ++i) {
    const CudaSelectPlace place = PlaceOf(groups[i], i);
    if (place.num_candidates == 0) continue;
    if (place.num_candidates > bounds.max_candidates) {
      return Concat("group ", i, " has ", place.num_candidates,
                    " candidates, the bound is ", bounds.max_candidates);
    }
    if (place.group_idx >= bounds.max_groups) {
      return Concat("group ", i, " of at most ", bounds.max_groups);
    }
    layout.AuditGroup(place, audit);
  }
  return "";
}

std::string SizeFault(const DeviceLayout& layout, size_t bytes) {
  if (layout.bytes() <= bytes) return "";
  return Concat("scratch of ", layout.bytes(), " bytes in ", bytes);
}

// Checks one selection's use of scratch: all indices of its groups are within
// `bytes`.
template <typename Layout>
std::string SelectionFault(const std::vector<CudaSelectGroup>& groups,
                           const CudaSelectBounds& bounds, const Layout& layout,
                           size_t bytes) {
  std::string fault = SizeFault(layout.layout, bytes);
  if (!fault.empty()) return fault;
  LayoutAudit audit;
  fault = AuditGroups(groups, bounds, layout, &audit);
  return fault.empty() ? audit.fault() : fault;
}

// Checks the ranges of the groups' candidates, for all three ways of selection.
std::string CandidatesFault(const CudaInputBatch& batch,
                            const CudaStepLimits& limits) {
  DeviceLayout layout;
  const DeviceRange candidates =
      layout.Add("candidates", limits.max_candidates, sizeof(Candidate));
  LayoutAudit audit;
  for (int i = 0; i < batch.num_groups(); ++i) {
    const int count = batch.selections[i].num_candidates +
                      batch.gumbel_selections[i].num_candidates +
                      batch.groups[i].num_draws;
    audit.Use(candidates, batch.selections[i].first_candidate, count);
  }
  return audit.fault();
}

// Checks the edit lists: the host's grow from the front, the device's from the
// back.
std::string EditsFault(const CudaInputBatch& batch,
                       const CudaStepLimits& limits) {
  DeviceLayout layout;
  const DeviceRange edits =
      layout.Add("edits", limits.max_edits, sizeof(TokenEdit));
  LayoutAudit audit;
  audit.Use(edits, 0, static_cast<int64_t>(batch.edits.size()));
  audit.Use(edits, int64_t{limits.max_edits} - batch.num_device_edits,
            batch.num_device_edits);
  return audit.fault();
}

// Checks the batch's arrays against the limits.
std::string ArraysFault(const CudaInputBatch& batch,
                        const CudaStepLimits& limits) {
  std::string fault;
  const auto check = [&](const char* name, size_t count, int64_t most) {
    if (!fault.empty() || count <= static_cast<size_t>(most)) return;
    fault = Concat(count, " ", name, ", there is room for ", most);
  };
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, const auto& array) {
        check(info.name, array.size(), info.max_size(limits));
      },
      batch);
  check("tokens asked about", batch.num_logprob_queries(),
        limits.max_asked_tokens());
  check("best tokens", batch.logprob_counts[0].num_best,
        limits.max_best_tokens);
  check("draws", batch.num_draws(), limits.max_rows);
  return fault;
}

// Checks the counts of groups, tokens and log-probability queries.
std::string CountsFault(const CudaInputBatch& batch,
                        const CudaStepShape& shape) {
  const std::pair<const char*, std::pair<int, int>> counts[] = {
      {"groups", {batch.num_groups(), shape.max_groups}},
      {"tokens", {batch.num_tokens(), shape.num_tokens}},
      {"rows of logits", {batch.num_logits_rows(), shape.num_logits_rows}},
      {"tokens asked about", {batch.num_logprob_queries(), shape.max_asked}},
  };
  for (const auto& [what, count] : counts) {
    if (count.first <= count.second) continue;
    return Concat(count.first, " ", what, ", the bound is ", count.second);
  }
  return "";
}

// Checks the draws that the host lists: each is from a row of the group that
// has its candidate, and no two share a candidate. The device derives all other
// draws from first_draw.
std::string DrawsFault(const CudaInputBatch& batch,
                       const CudaStepLimits& limits) {
  DeviceLayout layout;
  const DeviceRange candidates =
      layout.Add("candidates drawn", limits.max_candidates, sizeof(Candidate));
  LayoutAudit audit;
  for (const CudaDraw& draw : batch.prompt_draws) {
    if (draw.row < 0 || draw.row >= batch.num_logits_rows()) {
      return Concat("a draw from row ", draw.row, " of ",
                    batch.num_logits_rows());
    }
    const int group_idx = batch.row_groups[draw.row];
    if (group_idx < 0) return Concat("a draw from inactive row ", draw.row);
    const int place =
        draw.candidate - batch.selections[group_idx].first_candidate;
    const int num_draws = batch.groups[group_idx].num_draws;
    if (place < 0 || place >= num_draws) {
      return Concat("draw ", place, " of ", num_draws, " of group ", group_idx);
    }
    audit.Use(candidates, draw.candidate, 1);
  }
  return audit.fault();
}

// Checks the sequences with drafts: each has rows of logits of its own, whose
// candidates verification writes, and rows of drafts after all rows of logits.
std::string VerifyFault(const CudaInputBatch& batch, const CudaStepShape& shape,
                        const CudaStepLimits& limits, size_t bytes) {
  const CudaVerifyLayout layout(shape.num_verify_rows, batch.shape.vocab_size,
                                shape.max_verified, shape.has_edits);
  std::string fault = SizeFault(layout.layout, bytes);
  if (!fault.empty()) return fault;
  if (batch.num_verify_rows() > shape.num_verify_rows ||
      shape.num_verify_rows > limits.max_rows ||
      batch.num_verified() > shape.max_verified) {
    return Concat(batch.num_verified(), " sequences of drafts with ",
                  batch.num_verify_rows(), " rows, the bounds are ",
                  shape.max_verified, " and ", shape.num_verify_rows);
  }
  DeviceLayout arrays;
  const DeviceRange rows =
      arrays.Add("rows to verify", limits.max_rows, sizeof(float));
  const DeviceRange candidates =
      arrays.Add("candidates", limits.max_candidates, sizeof(Candidate));
  const DeviceRange drafts =
      arrays.Add("drafts", batch.verify_drafts.size(), sizeof(TokenId));
  LayoutAudit audit;
  for (const CudaVerifySequence& sequence : batch.verify_sequences) {
    audit.Use(rows, sequence.first_row, sequence.num_drafts + 1);
    audit.Use(candidates, sequence.first_token, sequence.num_drafts + 1);
    audit.Use(drafts, sequence.first_draft, sequence.num_drafts);
    if (sequence.first_draft_row < 0) continue;
    if (sequence.first_draft_row < batch.num_logits_rows()) {
      return "a draft's row among those of the step";
    }
    audit.Use(rows, sequence.first_draft_row, sequence.num_drafts);
  }
  return audit.fault();
}

std::string SampleFault(const CudaInputBatch& batch, const CudaStepShape& shape,
                        const CudaStepLimits& limits, size_t bytes) {
  const CudaSampleLayout layout(shape.num_logits_rows, batch.shape.vocab_size,
                                shape.has_edits);
  std::string fault = SizeFault(layout.layout, bytes);
  if (!fault.empty()) return fault;
  if (batch.num_draws() > shape.max_draws) {
    return Concat(batch.num_draws(), " draws, the bound is ", shape.max_draws);
  }
  LayoutAudit audit;
  for (int i = 0; i < batch.num_groups(); ++i) {
    const CudaSelectGroup& rows = batch.selections[i];
    if (batch.groups[i].first_draw < 0) continue;
    layout.AuditRows(rows.first_row, rows.num_rows, &audit);
  }
  fault = audit.fault();
  return fault.empty() ? DrawsFault(batch, limits) : fault;
}

}  // namespace

CudaStepShape ShapeOf(const CudaInputBatch& batch, int num_copies) {
  return {.num_rows = batch.num_rows,
          .num_tokens = batch.num_tokens(),
          .num_logits_rows = batch.num_logits_rows(),
          .max_groups = std::max(batch.num_groups(), 1),
          .max_candidates = batch.max_candidates,
          .max_group_rows = batch.max_group_rows,
          .max_draws = batch.num_sampled > 0 ? batch.num_draws() : 0,
          .max_gumbel_top_k = batch.max_gumbel_top_k,
          .max_asked = batch.num_logprob_queries(),
          .max_best = batch.log_probs.max_best,
          .max_copies = batch.num_rows + num_copies,
          .max_verified = batch.num_verified(),
          .num_verify_rows = batch.num_verify_rows(),
          .verifies_draft_rows = batch.verified.num_draft_rows() > 0,
          .verifies_filtered = batch.verified.has_filters,
          .has_edits = batch.has_edits(),
          .has_masks = batch.has_masks(),
          .has_state_masks = batch.has_states(),
          .has_item_masks = batch.has_items(),
          .has_pushdown_masks = batch.has_stacks(),
          .has_device_edits = batch.has_device_edits(),
          .has_edited_rows = batch.has_edited_rows()};
}

bool IsReplayable(const CudaInputBatch& batch) {
  return batch.num_tokens() > 0 &&
         batch.num_tokens() == batch.num_logits_rows() &&
         batch.num_draws() <= batch.num_tokens();
}

CudaStepShape GraphShape(const CudaStepShape& step,
                         const CudaStepLimits& limits) {
  DCHECK(step.num_tokens == step.num_logits_rows &&
         step.max_draws <= step.num_tokens);
  CudaStepShape shape = step;
  shape.max_copies = step.num_tokens;
  shape.max_candidates = GraphBound(step.max_candidates, limits.max_candidates);
  // Blocks of absent groups are cheaper than more graphs. The exceptions are
  // few groups and wide groups, which take many blocks each.
  const bool few_groups = step.max_groups <= kMaxFewCudaSelectGroups;
  const int max_groups =
      few_groups || shape.max_candidates > kMaxNarrowCudaSelect
          ? PowerOfTwoFrom(step.max_groups)
          : step.num_tokens;
  shape.max_groups = std::min(max_groups, limits.max_rows);
  shape.max_draws = step.max_draws > 0 ? step.num_tokens : 0;
  shape.max_gumbel_top_k =
      GraphBound(step.max_gumbel_top_k, limits.max_candidates);
  shape.max_asked = GraphBound(step.max_asked, limits.max_asked_tokens());
  shape.max_best = GraphBound(step.max_best, limits.max_best_tokens);
  if (step.max_verified > 0) {
    shape.max_verified =
        std::min(PowerOfTwoFrom(step.max_verified), step.num_tokens);
  }
  return shape;
}

int PaddedDraftRows(int num_rows, int max_rows) {
  return num_rows == 0 ? 0 : std::min(PowerOfTwoFrom(num_rows), max_rows);
}

CudaSelectBounds SelectBounds(const CudaStepShape& shape,
                              const CudaStepLimits& limits, int vocab_size) {
  // The total counts all candidates of the step, because CudaSelect's groups
  // are placed after sampled tokens and candidates of rows with noise.
  return {.num_rows = shape.num_logits_rows,
          .vocab_size = vocab_size,
          .max_groups = shape.max_groups,
          .max_candidates = shape.max_candidates,
          .max_total_candidates = limits.max_candidates};
}

CudaSelectBounds GumbelTopKBounds(const CudaStepShape& shape,
                                  const CudaStepLimits& limits,
                                  int vocab_size) {
  CudaSelectBounds bounds = SelectBounds(shape, limits, vocab_size);
  bounds.max_candidates = shape.max_gumbel_top_k;
  return bounds;
}

CudaSelectBounds BestBounds(const CudaStepShape& shape,
                            const CudaStepLimits& limits, int vocab_size) {
  CudaSelectBounds bounds = SelectBounds(shape, limits, vocab_size);
  bounds.max_groups = shape.num_logits_rows;
  bounds.max_candidates = shape.max_best;
  bounds.max_total_candidates = limits.max_best_tokens;
  return bounds;
}

CudaStepScratch::CudaStepScratch(const CudaStepLimits& limits, int vocab_size) {
  const CudaStepShape largest = LargestShape(limits);
  const CudaSelectLayout select(SelectBounds(largest, limits, vocab_size));
  const CudaSelectLayout best(BestBounds(largest, limits, vocab_size));
  const CudaSampleLayout sample(largest.num_logits_rows, vocab_size, true);
  const CudaGumbelTopKLayout gumbel(
      GumbelTopKBounds(largest, limits, vocab_size), true);
  const CudaVerifyLayout verify(largest.num_verify_rows, vocab_size,
                                largest.max_verified, true);
  logits_bytes = size_t(limits.max_rows) * vocab_size * sizeof(float);
  choice_bytes = std::max({select.layout.bytes(), best.layout.bytes(),
                           sample.layout.bytes(), verify.layout.bytes()});
  gumbel_bytes = gumbel.layout.bytes();
}

std::string ScratchFault(const CudaInputBatch& batch,
                         const CudaStepShape& shape,
                         const CudaStepLimits& limits) {
  const int vocab_size = batch.shape.vocab_size;
  const CudaStepScratch scratch(limits, vocab_size);
  std::vector<std::string> faults = {
      CountsFault(batch, shape), CandidatesFault(batch, limits),
      EditsFault(batch, limits), ArraysFault(batch, limits)};
  const auto add_selection = [&](const std::vector<CudaSelectGroup>& groups,
                                 const CudaSelectBounds& bounds, size_t bytes) {
    faults.push_back(
        SelectionFault(groups, bounds, CudaSelectLayout(bounds), bytes));
  };
  if (shape.max_candidates > 0) {
    add_selection(batch.selections, SelectBounds(shape, limits, vocab_size),
                  scratch.choice_bytes);
  }
  if (shape.max_best > 0) {
    add_selection(batch.best_groups, BestBounds(shape, limits, vocab_size),
                  scratch.choice_bytes);
  }
  if (batch.num_sampled > 0) {
    faults.push_back(SampleFault(batch, shape, limits, scratch.choice_bytes));
  }
  if (shape.max_verified > 0) {
    faults.push_back(VerifyFault(batch, shape, limits, scratch.choice_bytes));
  }
  if (shape.max_gumbel_top_k > 0) {
    const CudaSelectBounds bounds = GumbelTopKBounds(shape, limits, vocab_size);
    const CudaGumbelTopKLayout gumbel(bounds, shape.has_edits);
    faults.push_back(SelectionFault(batch.gumbel_selections, bounds, gumbel,
                                    scratch.gumbel_bytes));
    add_selection(batch.gumbel_selections, bounds, gumbel.select.count);
  }
  for (const std::string& fault : faults) {
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace espalier
