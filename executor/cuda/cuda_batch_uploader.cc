#include "executor/cuda/cuda_batch_uploader.h"

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

// No array is missing in the list.
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

void CudaBatchUploader::Send(const CudaInputBatch& image, CudaDelta* delta) {
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, auto& sent, const auto* on_device,
          const auto& values) {
        if (!image.HasReaders(info.readers)) return;
        sent.Update(values, on_device, delta);
      },
      sent_, arrays_, image);
  // The device writes its lists over what longer ones of the host left there.
  // What it makes of row_edits differs from what was sent, but only where what
  // is sent says that it makes them.
  if (image.has_device_edits()) {
    sent_.edits.InvalidateFrom(image.shape.max_edits - image.num_device_edits);
  }
  SendAttention(image, delta);
  SendPrompts(image, delta);
}

void CudaBatchUploader::SendAttention(const CudaInputBatch& image,
                                      CudaDelta* delta) {
  if (planned_tokens_ == image.num_tokens() &&
      SameBytes(planned_rows_, image.attention_rows) &&
      SameBytes(planned_runs_, image.shared_runs)) {
    return;
  }
  const CudaAttentionWork work = PlanCudaAttention(
      image.attention_rows, image.shared_runs, image.num_tokens(), attention_,
      limits_.max_items, limits_.max_partials, device_);
  DCHECK(std::ssize(work.items) <= limits_.max_items &&
         work.partial_indptr.back() <= limits_.max_partials)
      << work.items.size() << " items, " << work.partial_indptr.back()
      << " partial results";
  ForEachAttentionArray(
      [&](const CudaArrayInfo&, auto& sent, const auto* on_device,
          const auto& values) { sent.Update(values, on_device, delta); },
      sent_work_, arrays_, work);
  planned_rows_ = image.attention_rows;
  planned_runs_ = image.shared_runs;
  planned_tokens_ = image.num_tokens();
  has_partials_ = work.partial_indptr.back() > 0;
}

// Between steps with prompts the device writes over these.
void CudaBatchUploader::SendPrompts(const CudaInputBatch& image,
                                    CudaDelta* delta) {
  const CudaBeamState& state = arrays_.state;
  const int first = image.num_rows;
  delta->Put<int>(state.batch_tokens + first, image.prompt_tokens);
  delta->Put<int>(state.batch_positions + first, image.prompt_positions);
  delta->Put<int>(state.logits_tokens + first, image.prompt_logits_tokens);
  delta->Put<float>(state.batch_cum_log_probs + first,
                    image.prompt_cum_log_probs);
  // Behind those that the device writes.
  delta->Put<CudaDraw>(
      state.draws + image.num_draws() - image.prompt_draws.size(),
      image.prompt_draws);
  const std::vector<CudaLogprobQuery>& known = image.log_probs.known;
  delta->Put<CudaLogprobQuery>(
      arrays_.log_probs.asked + image.num_logprob_queries() - known.size(),
      known);
}

void CudaBatchUploader::Forget() {
  const auto forget = [](const CudaArrayInfo&, auto& sent) { sent.Forget(); };
  ForEachBatchArray(forget, sent_);
  ForEachAttentionArray(forget, sent_work_);
  planned_tokens_ = -1;
}

}  // namespace espalier
