#include "executor/cuda/batch/cuda_batch_uploader.h"

#include <cstring>
#include <iterator>

#include "base/check.h"

namespace espalier {
namespace {

template <HasNoPadding T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Checks at compile time that the list has every array.
constexpr size_t NumListed() {
  CudaBatchArrays<DeviceArray> arrays;
  size_t count = 0;
  ForEachBatchArray([&](const CudaArrayInfo&, const auto*) { ++count; },
                    arrays);
  return count;
}
static_assert(NumListed() * sizeof(void*) ==
              sizeof(CudaBatchArrays<DeviceArray>));

constexpr auto kForget = [](const CudaArrayInfo&, auto& sent) {
  sent.Forget();
};

}  // namespace

void CudaAttentionUploader::Send(const std::vector<CudaAttentionRow>& rows,
                                 const std::vector<CudaSharedPrefix>& runs,
                                 int num_tokens, CudaDelta* delta) {
  if (num_tokens_ == num_tokens && SameBytes(rows_, rows) &&
      SameBytes(runs_, runs)) {
    return;
  }
  const CudaAttentionWork work = PlanCudaAttention(
      rows, runs, num_tokens, target_.shape, target_.max_items,
      target_.max_partials, target_.device);
  DCHECK(std::ssize(work.items) <= target_.max_items &&
         work.partial_indptr.back() <= target_.max_partials)
      << work.items.size() << " items, " << work.partial_indptr.back()
      << " partial results";
  ForEachAttentionArray(
      [&](const CudaArrayInfo&, auto& sent, const auto* on_device,
          const auto& values) { sent.Update(values, on_device, delta); },
      sent_, target_.arrays, work);
  rows_ = rows;
  runs_ = runs;
  num_tokens_ = num_tokens;
  has_partials_ = work.partial_indptr.back() > 0;
  has_own_tables_ = work.has_own_tables;
}

void CudaAttentionUploader::Forget() {
  ForEachAttentionArray(kForget, sent_);
  num_tokens_ = -1;
}

CudaBatchUploader::CudaBatchUploader(const CudaStepArrays& arrays,
                                     const CudaStepLimits& limits,
                                     const CudaAttentionShape& attention,
                                     const CudaDevice& device)
    : arrays_(arrays),
      attention_(
          {arrays, attention, limits.max_items, limits.max_partials, device}),
      cross_attention_({arrays.cross_attention, attention, limits.max_items,
                        limits.max_partials, device}) {}

void CudaBatchUploader::Send(const CudaInputBatch& batch, CudaDelta* delta) {
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, auto& sent, const auto* on_device,
          const auto& values) {
        if (!batch.HasReaders(info.readers)) return;
        sent.Update(values, on_device, delta);
      },
      sent_, arrays_, batch);
  // The device writes its lists over what longer ones of the host left there.
  // It also overwrites row_edits, but only entries that were sent as
  // placeholders, and it does so in every step: lists that it builds, and masks
  // that it finds, whose placeholder is the row's own number.
  if (batch.has_device_edits()) {
    sent_.edits.InvalidateFrom(batch.shape.max_edits - batch.num_device_edits);
  }
  attention_.Send(batch.attention_rows, batch.shared_runs, batch.num_tokens(),
                  delta);
  if (batch.HasReaders(CudaArrayReaders::kWithSources)) {
    cross_attention_.Send(batch.cross_rows, {}, batch.num_tokens(), delta);
  }
  SendPrompts(batch, delta);
}

// These arrays have no shadow copies, because the device overwrites them
// between steps with prompts.
void CudaBatchUploader::SendPrompts(const CudaInputBatch& batch,
                                    CudaDelta* delta) {
  const CudaBeamState& state = arrays_.state;
  const int first = batch.num_rows;
  delta->Put<int>(state.batch_tokens + first, batch.prompt_tokens);
  delta->Put<int>(state.batch_positions + first, batch.prompt_positions);
  delta->Put<int>(state.logits_tokens + first, batch.prompt_logits_tokens);
  delta->Put<float>(state.batch_cum_log_probs + first,
                    batch.prompt_cum_log_probs);
  // The host's draws come after those that the device writes.
  delta->Put<CudaDraw>(
      state.draws + batch.num_draws() - batch.prompt_draws.size(),
      batch.prompt_draws);
  const std::vector<CudaLogprobQuery>& known = batch.log_probs.known;
  delta->Put<CudaLogprobQuery>(
      arrays_.log_probs.asked + batch.num_logprob_queries() - known.size(),
      known);
}

void CudaBatchUploader::Forget() {
  ForEachBatchArray(kForget, sent_);
  attention_.Forget();
  cross_attention_.Forget();
}

}  // namespace espalier
