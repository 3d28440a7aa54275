// Rows whose tokens are restricted, by allow lists or by masks of the same
// tokens: selection and sampling must give the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/constrain/token_masks.h"
#include "kernels/logits/cuda_row_edits.h"
#include "kernels/logits/score_processors.h"

namespace espalier::testing {

// Returns an allow list of about `share` of the tokens, with their edits.
inline std::vector<TokenEdit> AllowSome(const std::vector<TokenEdit>& edits,
                                        int vocab_size, double share,
                                        uint32_t seed) {
  std::vector<TokenEdit> allowed;
  auto edit = edits.begin();
  for (TokenId token = 0; token < vocab_size; ++token) {
    const bool is_edited = edit != edits.end() && edit->token == token;
    const uint32_t hash = (token + seed * 7919u + 1) * 2654435761u;
    if (hash < share * 4294967296.0) {
      allowed.push_back(is_edited ? *edit : TokenEdit{.token = token});
    }
    if (is_edited) ++edit;
  }
  return allowed;
}

// The edits of a call's rows.
struct RowEditArrays {
  std::vector<CudaRowEdits> rows;
  std::vector<TokenEdit> edits;
  std::vector<uint32_t> masks = {};

  // Returns them with a mask in place of each allow list, without the edits
  // that change nothing, and with edits of some tokens that the mask bans.
  RowEditArrays WithMasks(int vocab_size) const {
    const int num_words = NumMaskWords(vocab_size);
    RowEditArrays masked;
    // An unused mask first, of all tokens.
    masked.masks.assign(num_words, ~uint32_t{0});
    for (CudaRowEdits row : rows) {
      const auto list = std::vector<TokenEdit>(edits.begin() + row.begin,
                                               edits.begin() + row.end);
      row.begin = static_cast<int>(masked.edits.size());
      if (row.is_allow_list == 0) {
        masked.edits.insert(masked.edits.end(), list.begin(), list.end());
      } else {
        row.is_allow_list = 0;
        row.mask = static_cast<int>(masked.masks.size()) / num_words;
        masked.masks.resize(masked.masks.size() + num_words);
        uint32_t* const mask =
            &masked.masks[size_t(row.mask) * size_t(num_words)];
        auto next = list.begin();
        for (TokenId token = 0; token < vocab_size; ++token) {
          if (next == list.end() || next->token != token) {
            if (token % 97 == 3) {
              masked.edits.push_back({.token = token, .bias = 20.0f});
            }
            continue;
          }
          mask[token / 32] |= uint32_t{1} << (token % 32);
          if (*next != TokenEdit{.token = token}) {
            masked.edits.push_back(*next);
          }
          ++next;
        }
      }
      row.end = static_cast<int>(masked.edits.size());
      masked.rows.push_back(row);
    }
    return masked;
  }
};

}  // namespace espalier::testing
