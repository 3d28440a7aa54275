#include "exec_request/encoder_input.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"

namespace espalier {
namespace {

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(T)};
}

// The hash of tokens is of their bytes alone, of features of the hash of theirs
// and their shape: no tokens have 44 bytes that begin so.
std::string HashOf(const FeatureMatrix& features) {
  const std::vector<int> shape = {features.shape.num_rows,
                                  features.shape.num_cols};
  std::string bytes = "feat";
  bytes += BytesOf(shape);
  bytes += Sha256(BytesOf(features.values));
  return Sha256(bytes);
}

}  // namespace

EncoderInput::EncoderInput(std::vector<TokenId> tokens)
    : tokens_(std::move(tokens)),
      length_(static_cast<int>(tokens_.size())),
      content_hash_(Sha256(BytesOf(tokens_))) {
  CHECK(!tokens_.empty()) << "an encoder has nothing to read";
}

EncoderInput::EncoderInput(std::shared_ptr<const FeatureMatrix> features,
                           int length)
    : features_(std::move(features)),
      length_(length),
      content_hash_(HashOf(*features_)) {
  CHECK_EQ(features_->values.size(),
           size_t(features_->shape.num_rows) * features_->shape.num_cols);
  CHECK_GE(length_, 1);
}

}  // namespace espalier
