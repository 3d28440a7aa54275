#include "beam/pages/prefix_roots.h"

#include <iterator>

namespace espalier {
namespace {

// Returns the name of a root. The hash has a fixed size, so that no salt is
// taken for a part of it. Without an encoder there are no other roots than
// these, so a salt is a name itself.
std::string RootOf(char kind, const EncoderInput* source,
                   std::string_view cache_salt) {
  std::string root;
  if (source != nullptr) {
    root.push_back(kind);
    root += source->content_hash();
  }
  root += cache_salt;
  return root;
}

}  // namespace

PrefixRoots::PrefixRoots(const EncoderInput* input, std::string_view cache_salt)
    : tokens(RootOf('t', input, cache_salt)),
      source(input == nullptr ? "" : RootOf('s', input, cache_salt)) {}

std::vector<PageRef> FindCachedPages(const PrefixRoots& roots,
                                     int64_t num_source_pages,
                                     std::span<const TokenId> tokens,
                                     PrefixTree* tree) {
  std::vector<PageRef> pages;
  if (num_source_pages > 0) {
    const auto source = tree->ChainTokens(num_source_pages);
    pages = tree->Find(roots.source, {}, {source}).pages;
    if (std::ssize(pages) < num_source_pages) return pages;
  }
  PrefixMatch match = tree->Find(roots.tokens, {}, {tokens});
  pages.insert(pages.end(), std::make_move_iterator(match.pages.begin()),
               std::make_move_iterator(match.pages.end()));
  return pages;
}

}  // namespace espalier
