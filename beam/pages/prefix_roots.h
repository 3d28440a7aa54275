// PrefixRoots: the names of a request's roots in the prefix tree
// (pages/prefix_tree.h), so that only requests whose pages have the same
// contents meet under a root.
//
// A decoder's keys and values depend on its tokens, and with an encoder on the
// source too. So there is a root for each salt and source. Pages of the source
// itself are under another root, as a chain of pages that all have the same
// edge (PrefixTree::ChainTokens): the content hash in the root's name says what
// they hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "exec_request/encoder_input.h"
#include "pages/page_pool.h"
#include "pages/prefix_tree.h"

namespace espalier {

struct PrefixRoots {
  // `input` may be null: the model has no encoder.
  PrefixRoots(const EncoderInput* input, std::string_view cache_salt);

  std::string tokens;
  std::string source;  // unused without an encoder
};

// Returns the pages in the tree that a request need not fill: of its source
// and, if that is complete, of the first of `tokens`. Throws std::bad_alloc.
//   num_source_pages  0: no encoder
std::vector<PageRef> FindCachedPages(const PrefixRoots& roots,
                                     int64_t num_source_pages,
                                     std::span<const TokenId> tokens,
                                     PrefixTree* tree);

}  // namespace espalier
