#include "executor/cuda/cuda_step_shape.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/status.h"
#include "executor/cuda/cuda_input_batch.h"

namespace espalier {
namespace {

// The least bound of candidates and tokens: 16 cost what fewer do.
constexpr int kMinBound = 16;

int PowerOfTwoFrom(int value) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(value)));
}

// A bound of how many there are, for few graphs: a power of two within what
// there can be; 0 for none.
int GraphBound(int count, int most) {
  if (count == 0) return 0;
  return std::min(PowerOfTwoFrom(std::max(count, kMinBound)),
                  std::max(count, most));
}

// As far as scratch is concerned.
CudaStepShape LargestShape(const CudaStepLimits& limits) {
  return {.num_logits_rows = limits.max_rows,
          .max_groups = limits.max_rows,
          .max_candidates = limits.max_candidates,
          .max_draws = limits.max_rows,
          .max_perturbed = limits.max_candidates,
          .max_best = limits.max_best_tokens,
          .has_edits = true};
}

CudaSelectPlace PlaceOf(const CudaSelectGroup& group, size_t group_idx) {
  return {.group_idx = static_cast<int>(group_idx),
          .first_row = group.first_row,
          .num_rows = group.num_rows,
          .num_candidates = group.num_candidates,
          .first_candidate = group.first_candidate};
}

// Adds what a selection indexes, for the groups that it chooses for; returns
// what is above its bounds.
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

// One use of scratch: what a selection's groups index, of `bytes` there are.
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

// Places of the groups' candidates, whoever chooses them.
std::string CandidatesFault(const CudaInputBatch& image,
                            const CudaStepLimits& limits) {
  DeviceLayout layout;
  const DeviceRange candidates =
      layout.Add("candidates", limits.max_candidates, sizeof(Candidate));
  LayoutAudit audit;
  for (int i = 0; i < image.num_groups(); ++i) {
    const int count = image.selections[i].num_candidates +
                      image.perturbed_selections[i].num_candidates +
                      image.groups[i].num_draws;
    audit.Use(candidates, image.selections[i].first_candidate, count);
  }
  return audit.fault();
}

// Lists of edits: those of the host from the front, those that the device makes
// from the back.
std::string EditsFault(const CudaInputBatch& image,
                       const CudaStepLimits& limits) {
  DeviceLayout layout;
  const DeviceRange edits =
      layout.Add("edits", limits.max_edits, sizeof(TokenEdit));
  LayoutAudit audit;
  audit.Use(edits, 0, static_cast<int64_t>(image.edits.size()));
  audit.Use(edits, int64_t{limits.max_edits} - image.num_device_edits,
            image.num_device_edits);
  return audit.fault();
}

// Arrays of the batch: each has as many as the limits say at most.
std::string ArraysFault(const CudaInputBatch& image,
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
      image);
  check("tokens asked about", image.num_logprob_queries(),
        limits.max_asked_tokens());
  check("best tokens", image.log_prob_counts[0].num_best,
        limits.max_best_tokens);
  check("draws", image.num_draws(), limits.max_rows);
  return fault;
}

// Draws of prompts, which the host lists: each of a line of the group that has
// its candidate, in its own place. The others the device makes of first_draw.
std::string DrawsFault(const CudaInputBatch& image,
                       const CudaStepLimits& limits) {
  DeviceLayout layout;
  const DeviceRange candidates =
      layout.Add("candidates drawn", limits.max_candidates, sizeof(Candidate));
  LayoutAudit audit;
  for (const CudaDraw& draw : image.prompt_draws) {
    if (draw.row < 0 || draw.row >= image.num_logits_rows()) {
      return Concat("a draw from line ", draw.row, " of ",
                    image.num_logits_rows());
    }
    const int group_idx = image.row_groups[draw.row];
    if (group_idx < 0) return Concat("a draw from nobody's line ", draw.row);
    const int place =
        draw.candidate - image.selections[group_idx].first_candidate;
    const int num_draws = image.groups[group_idx].num_draws;
    if (place < 0 || place >= num_draws) {
      return Concat("draw ", place, " of ", num_draws, " of group ", group_idx);
    }
    audit.Use(candidates, draw.candidate, 1);
  }
  return audit.fault();
}

std::string SampleFault(const CudaInputBatch& image, const CudaStepShape& shape,
                        const CudaStepLimits& limits, size_t bytes) {
  const CudaSampleLayout layout(shape.num_logits_rows, image.shape.vocab_size,
                                shape.has_edits);
  std::string fault = SizeFault(layout.layout, bytes);
  if (!fault.empty()) return fault;
  if (image.num_draws() > shape.max_draws) {
    return Concat(image.num_draws(), " draws, the bound is ", shape.max_draws);
  }
  LayoutAudit audit;
  for (int i = 0; i < image.num_groups(); ++i) {
    const CudaSelectGroup& rows = image.selections[i];
    if (image.groups[i].first_draw < 0) continue;
    layout.AuditRows(rows.first_row, rows.num_rows, &audit);
  }
  fault = audit.fault();
  return fault.empty() ? DrawsFault(image, limits) : fault;
}

}  // namespace

CudaStepShape ShapeOf(const CudaInputBatch& image, int num_copies) {
  return {.num_rows = image.num_rows,
          .num_tokens = image.num_tokens(),
          .num_logits_rows = image.num_logits_rows(),
          .max_groups = std::max(image.num_groups(), 1),
          .max_candidates = image.max_candidates,
          .max_group_rows = image.max_group_rows,
          .max_draws = image.num_draws(),
          .max_perturbed = image.max_perturbed,
          .max_asked = image.num_logprob_queries(),
          .max_best = image.log_probs.max_best,
          .max_copies = image.num_rows + num_copies,
          .has_edits = image.has_edits(),
          .has_device_edits = image.has_device_edits()};
}

CudaStepShape GraphShape(const CudaStepShape& step,
                         const CudaStepLimits& limits) {
  CudaStepShape shape = step;
  shape.num_tokens = shape.num_logits_rows = shape.max_copies = step.num_rows;
  shape.max_candidates = GraphBound(step.max_candidates, limits.max_candidates);
  // Blocks of groups that are not there cost little, graphs more; but few
  // groups, and wide ones, are selected for by many blocks each.
  const bool few_groups = step.max_groups <= kMaxFewCudaSelectGroups;
  const int max_groups =
      few_groups || shape.max_candidates > kMaxNarrowCudaSelect
          ? PowerOfTwoFrom(step.max_groups)
          : step.num_rows;
  shape.max_groups = std::min(max_groups, limits.max_rows);
  shape.max_draws = step.max_draws > 0 ? step.num_rows : 0;
  shape.max_perturbed = GraphBound(step.max_perturbed, limits.max_candidates);
  shape.max_asked = GraphBound(step.max_asked, limits.max_asked_tokens());
  shape.max_best = GraphBound(step.max_best, limits.max_best_tokens);
  return shape;
}

CudaSelectBounds SelectBounds(const CudaStepShape& shape,
                              const CudaStepLimits& limits, int vocab_size) {
  // Candidates of the step, not of the groups that are selected for: these are
  // placed behind tokens drawn and candidates of perturbed rows.
  return {.num_rows = shape.num_logits_rows,
          .vocab_size = vocab_size,
          .max_groups = shape.max_groups,
          .max_candidates = shape.max_candidates,
          .max_total_candidates = limits.max_candidates};
}

CudaSelectBounds PerturbBounds(const CudaStepShape& shape,
                               const CudaStepLimits& limits, int vocab_size) {
  CudaSelectBounds bounds = SelectBounds(shape, limits, vocab_size);
  bounds.max_candidates = shape.max_perturbed;
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
  const CudaGumbelTopKLayout perturb(PerturbBounds(largest, limits, vocab_size),
                                     true);
  logits_bytes = size_t(limits.max_rows) * vocab_size * sizeof(float);
  choice_bytes = std::max(
      {select.layout.bytes(), best.layout.bytes(), sample.layout.bytes()});
  perturb_bytes = perturb.layout.bytes();
}

std::string ScratchFault(const CudaInputBatch& image,
                         const CudaStepShape& shape,
                         const CudaStepLimits& limits) {
  const int vocab_size = image.shape.vocab_size;
  const CudaStepScratch scratch(limits, vocab_size);
  std::vector<std::string> faults = {CandidatesFault(image, limits),
                                     EditsFault(image, limits),
                                     ArraysFault(image, limits)};
  const auto add_selection = [&](const std::vector<CudaSelectGroup>& groups,
                                 const CudaSelectBounds& bounds, size_t bytes) {
    faults.push_back(
        SelectionFault(groups, bounds, CudaSelectLayout(bounds), bytes));
  };
  if (shape.max_candidates > 0) {
    add_selection(image.selections, SelectBounds(shape, limits, vocab_size),
                  scratch.choice_bytes);
  }
  if (shape.max_best > 0) {
    add_selection(image.best_groups, BestBounds(shape, limits, vocab_size),
                  scratch.choice_bytes);
  }
  if (shape.max_draws > 0) {
    faults.push_back(SampleFault(image, shape, limits, scratch.choice_bytes));
  }
  if (shape.max_perturbed > 0) {
    const CudaSelectBounds bounds = PerturbBounds(shape, limits, vocab_size);
    const CudaGumbelTopKLayout perturb(bounds, shape.has_edits);
    faults.push_back(SelectionFault(image.perturbed_selections, bounds, perturb,
                                    scratch.perturb_bytes));
    add_selection(image.perturbed_selections, bounds, perturb.select.count);
  }
  for (const std::string& fault : faults) {
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace espalier
