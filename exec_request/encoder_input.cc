#include "exec_request/encoder_input.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"

namespace espalier {

EncoderInput::EncoderInput(std::vector<TokenId> tokens)
    : tokens_(std::move(tokens)),
      content_hash_(
          Sha256(std::string_view(reinterpret_cast<const char*>(tokens_.data()),
                                  tokens_.size() * sizeof(TokenId)))) {
  CHECK(!tokens_.empty()) << "an encoder has nothing to read";
}

}  // namespace espalier
