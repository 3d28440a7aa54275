// DraftLogits: the rows of logits that the tokens of one draft were drawn from,
// which verification by rejection asks for (kernels/verify/verify.h). They stay
// where they were computed, on the host or in the memory of a GPU; copies share
// them, and the last one gives their memory back.
//
// Thread safety: a plain value; copies may end on any thread.
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

  // None.
  DraftLogits() = default;
  // Of the host: [tokens, vocab_size] f32.
  explicit DraftLogits(std::vector<float> logits) {
    const auto owner =
        std::make_shared<const std::vector<float>>(std::move(logits));
    size_ = owner->size();
    logits_ = {owner, owner->data()};
  }
  // The same in memory of a GPU, complete. What `logits` owns is freed without
  // waiting for the GPU: who reads keeps a copy until it has read.
  DraftLogits(std::shared_ptr<const float> logits, size_t size, int ordinal)
      : logits_(std::move(logits)), size_(size), device_(ordinal) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }  // of all rows
  // The ordinal of the GPU that they are on; or kHost.
  int device() const { return device_; }
  // Where they are.
  const float* data() const { return logits_.get(); }
  // REQUIRES: they are on the host.
  std::span<const float> values() const;

  // Those of the first tokens. REQUIRES: size <= size().
  DraftLogits First(size_t size) const { return {logits_, size, device_}; }

 private:
  std::shared_ptr<const float> logits_;
  size_t size_ = 0;
  int device_ = kHost;
};

}  // namespace espalier
