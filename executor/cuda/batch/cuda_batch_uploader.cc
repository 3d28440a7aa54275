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

}  // namespace

CudaBatchUploader::CudaBatchUploader(const CudaStepArrays& arrays,
                                     const CudaStepLimits& limits,
                                     const CudaAttentionShape& attention,
                                     const CudaDevice& device)
    : arrays_(arrays),
      limits_(limits),
      attention_(attention),
      device_(device) {}

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
  SendWork(batch.attention_rows, batch.shared_runs, batch.num_tokens(), arrays_,
           &work_, delta);
  if (batch.HasReaders(CudaArrayReaders::kWithSources)) {
    SendWork(batch.cross_rows, {}, batch.num_tokens(), arrays_.cross_attention,
             &cross_work_, delta);
  }
  SendPrompts(batch, delta);
}

void CudaBatchUploader::SendWork(const std::vector<CudaAttentionRow>& rows,
                                 const std::vector<CudaSharedPrefix>& runs,
                                 int num_tokens,
                                 const CudaAttentionArrays<DeviceArray>& to,
                                 SentWork* sent, CudaDelta* delta) {
  if (sent->num_tokens == num_tokens && SameBytes(sent->rows, rows) &&
      SameBytes(sent->runs, runs)) {
    return;
  }
  const CudaAttentionWork work =
      PlanCudaAttention(rows, runs, num_tokens, attention_, limits_.max_items,
                        limits_.max_partials, device_);
  DCHECK(std::ssize(work.items) <= limits_.max_items &&
         work.partial_indptr.back() <= limits_.max_partials)
      << work.items.size() << " items, " << work.partial_indptr.back()
      << " partial results";
  ForEachAttentionArray(
      [&](const CudaArrayInfo&, auto& sent_array, const auto* on_device,
          const auto& values) { sent_array.Update(values, on_device, delta); },
      sent->arrays, to, work);
  sent->rows = rows;
  sent->runs = runs;
  sent->num_tokens = num_tokens;
  sent->has_partials = work.partial_indptr.back() > 0;
  sent->has_own_tables = work.has_own_tables;
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
  const auto forget = [](const CudaArrayInfo&, auto& sent) { sent.Forget(); };
  ForEachBatchArray(forget, sent_);
  for (SentWork* const work : {&work_, &cross_work_}) {
    ForEachAttentionArray(forget, work->arrays);
    work->num_tokens = -1;
  }
}

}  // namespace espalier
