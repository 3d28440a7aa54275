#include "executor/cuda/cuda_batch_mirror.h"

#include <cstring>
#include <iterator>

#include "base/check.h"

namespace espalier {
namespace {

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  static_assert(std::has_unique_object_representations_v<T>);
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

CudaBatchMirror::CudaBatchMirror(const CudaStepMemory* memory,
                                 const CudaAttentionShape& attention,
                                 const CudaDevice& device)
    : memory_(memory),
      attention_(attention),
      device_(device),
      num_groups_(memory->arrays().state.num_groups),
      groups_(memory->arrays().state.groups),
      selections_(memory->arrays().state.selections),
      row_groups_(memory->arrays().state.row_groups),
      select_row_groups_(memory->arrays().select_row_groups),
      eos_token_ids_(memory->arrays().state.eos_token_ids),
      token_tables_(memory->arrays().token_tables),
      row_edits_(memory->arrays().row_edits),
      edits_(memory->arrays().edits),
      edit_rows_(memory->arrays().edit_rows),
      edit_rules_(memory->arrays().edit_rules),
      num_draws_(memory->arrays().num_draws),
      row_params_(memory->arrays().row_params),
      params_(memory->arrays().params),
      perturbed_selections_(memory->arrays().perturbed_selections),
      perturbed_rows_(memory->arrays().perturbed_rows),
      perturbed_params_(memory->arrays().perturbed_params),
      log_prob_counts_(memory->arrays().log_probs.counts),
      asking_groups_(memory->arrays().log_probs.asking_groups),
      best_groups_(memory->arrays().log_probs.best_groups),
      best_row_groups_(memory->arrays().log_probs.best_row_groups),
      items_(memory->arrays().items),
      item_counts_(memory->arrays().item_counts),
      partial_indptr_(memory->arrays().partial_indptr) {}

void CudaBatchMirror::Send(const CudaBatchImage& image, CudaDelta* delta) {
  SendGroups(image, delta);
  SendEdits(image, delta);
  SendDraws(image, delta);
  SendPerturbed(image, delta);
  SendLogProbs(image, delta);
  SendAttention(image, delta);
  SendPrompts(image, delta);
}

void CudaBatchMirror::SendGroups(const CudaBatchImage& image,
                                 CudaDelta* delta) {
  const int num_groups = image.num_groups();
  num_groups_.Update({&num_groups, 1}, delta);
  groups_.Update(image.groups, delta);
  selections_.Update(image.selections, delta);
  row_groups_.Update(image.row_groups, delta);
  select_row_groups_.Update(image.SelectRowGroups(), delta);
  eos_token_ids_.Update(image.eos_token_ids, delta);
  token_tables_.Update(image.token_tables, delta);
}

// Where no row of the batch has edits the lists are not read. What the device
// makes of row_edits differs from what was sent, but only where what is sent
// says that it makes them.
void CudaBatchMirror::SendEdits(const CudaBatchImage& image, CudaDelta* delta) {
  if (!image.has_edits()) return;
  row_edits_.Update(image.row_edits, delta);
  edits_.Update(image.edits, delta);
  if (!image.makes_edits()) return;
  // The device writes its lists over what longer ones of the host left there.
  edits_.ForgetBehind(image.shape.max_edits - image.num_made_edits);
  edit_rows_.Update(image.edit_rows, delta);
  edit_rules_.Update(image.edit_rules, delta);
}

// Where nobody draws, nothing of this is read. Draws of prompts stand behind
// those that the device writes.
void CudaBatchMirror::SendDraws(const CudaBatchImage& image, CudaDelta* delta) {
  params_.Update(image.params, delta);
  if (image.num_draws == 0) return;
  num_draws_.Update({&image.num_draws, 1}, delta);
  row_params_.Update(image.row_params, delta);
  const int first =
      image.num_draws - static_cast<int>(image.prompt_draws.size());
  delta->Put<CudaDraw>(memory_->arrays().state.draws + first,
                       image.prompt_draws);
}

void CudaBatchMirror::SendPerturbed(const CudaBatchImage& image,
                                    CudaDelta* delta) {
  if (image.max_perturbed == 0) return;
  perturbed_selections_.Update(image.perturbed_selections, delta);
  perturbed_rows_.Update(image.perturbed_rows, delta);
  perturbed_params_.Update(image.perturbed_params, delta);
}

// Where nobody asks, nothing of this is read.
void CudaBatchMirror::SendLogProbs(const CudaBatchImage& image,
                                   CudaDelta* delta) {
  const CudaLogProbImage& asked = image.log_probs;
  if (asked.num_asked == 0) return;
  const CudaLogProbCounts counts = asked.counts();
  log_prob_counts_.Update({&counts, 1}, delta);
  asking_groups_.Update(asked.asking_groups, delta);
  best_groups_.Update(asked.best_groups, delta);
  // Lines behind the last that has any have none.
  std::vector<int> row_groups = asked.best_row_groups;
  row_groups.resize(image.num_lines(), -1);
  best_row_groups_.Update(row_groups, delta);
  const int first = asked.num_asked - static_cast<int>(asked.known.size());
  delta->Put<CudaAskedToken>(memory_->arrays().log_probs.asked + first,
                             asked.known);
}

void CudaBatchMirror::SendAttention(const CudaBatchImage& image,
                                    CudaDelta* delta) {
  if (planned_tokens_ == image.num_tokens() &&
      SameBytes(planned_rows_, image.attention_rows) &&
      SameBytes(planned_runs_, image.shared_runs)) {
    return;
  }
  const CudaStepLimits& limits = memory_->limits();
  const CudaAttentionWork work = PlanCudaAttention(
      image.attention_rows, image.shared_runs, image.num_tokens(), attention_,
      limits.max_items, limits.max_partials, device_);
  DCHECK(std::ssize(work.items) <= limits.max_items &&
         work.partial_indptr.back() <= limits.max_partials)
      << work.items.size() << " items, " << work.partial_indptr.back()
      << " partial results";
  items_.Update(work.items, delta);
  item_counts_.Update(work.item_counts, delta);
  partial_indptr_.Update(work.partial_indptr, delta);
  planned_rows_ = image.attention_rows;
  planned_runs_ = image.shared_runs;
  planned_tokens_ = image.num_tokens();
  has_partials_ = work.partial_indptr.back() > 0;
}

// Between steps with prompts the device writes over these.
void CudaBatchMirror::SendPrompts(const CudaBatchImage& image,
                                  CudaDelta* delta) {
  const CudaResidentState& state = memory_->arrays().state;
  const int first = image.num_rows;
  delta->Put<int>(state.batch_tokens + first, image.prompt_tokens);
  delta->Put<int>(state.batch_positions + first, image.prompt_positions);
  delta->Put<int>(state.logits_tokens + first, image.prompt_logits_tokens);
  delta->Put<float>(state.batch_cum_log_probs + first,
                    image.prompt_cum_log_probs);
}

void CudaBatchMirror::Forget() {
  num_groups_.Forget();
  groups_.Forget();
  selections_.Forget();
  row_groups_.Forget();
  select_row_groups_.Forget();
  eos_token_ids_.Forget();
  token_tables_.Forget();
  row_edits_.Forget();
  edits_.Forget();
  edit_rows_.Forget();
  edit_rules_.Forget();
  num_draws_.Forget();
  row_params_.Forget();
  params_.Forget();
  perturbed_selections_.Forget();
  perturbed_rows_.Forget();
  perturbed_params_.Forget();
  log_prob_counts_.Forget();
  asking_groups_.Forget();
  best_groups_.Forget();
  best_row_groups_.Forget();
  items_.Forget();
  item_counts_.Forget();
  partial_indptr_.Forget();
  planned_tokens_ = -1;
}

}  // namespace espalier
