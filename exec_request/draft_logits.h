// DraftLogits: the rows of logits that the tokens of one draft were drawn from,
// as the draft model computed them: before edits, temperature and filters.
// Verification by rejection reads them (kernels/verify/verify.h). They stay
// where they were computed, on the host or in the memory of a GPU. Copies share
// them, and the last copy frees them.
//
// Thread safety: a plain value; copies may be destroyed on any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace espalier {

class DraftLogits {
 public:
  static constexpr int kHost = -1;

  // Makes an empty value.
  DraftLogits() = default;
  // Wraps logits on the host: [tokens, vocab_size] f32.
  explicit DraftLogits(std::vector<float> logits) {
    const auto owner =
        std::make_shared<const std::vector<float>>(std::move(logits));
    size_ = owner->size();
    logits_ = {owner, owner->data()};
  }
  // Wraps logits in GPU memory, of the same shape. The GPU writes them before a
  // reader is given this value. `logits` frees the memory without waiting for
  // the GPU, so a reader keeps a copy until its reads have completed.
  DraftLogits(std::shared_ptr<const float> logits, size_t size, int ordinal)
      : logits_(std::move(logits)), size_(size), device_(ordinal) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }  // values in all rows
  // Returns the ordinal of the GPU that holds the logits, or kHost.
  int device() const { return device_; }
  const float* data() const { return logits_.get(); }
  // REQUIRES: they are on the host.
  std::span<const float> values() const;

  // Returns the first `size` values, without a copy.
  // REQUIRES: size <= size(), a multiple of vocab_size.
  DraftLogits First(size_t size) const { return {logits_, size, device_}; }

 private:
  std::shared_ptr<const float> logits_;
  size_t size_ = 0;
  int device_ = kHost;
};

}  // namespace espalier
