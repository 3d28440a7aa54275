#include "beam/pages/source_layout.h"

#include <string>
#include <vector>

#include "base/page_count.h"
#include "base/wording.h"
#include "pages/page_table.h"
#include "request/decoder_prompt.h"

namespace espalier {

SourceLayout LayOutSource(const ModelDescription& model, Request* request) {
  if (!model.encoder) return {};
  std::vector<TokenId>& tokens = request->prompt_tokens;
  SourceLayout layout = {.num_tokens = static_cast<int>(tokens.size())};
  layout.end = static_cast<int>(NumPages(layout.num_tokens, model.page_size)) *
               model.page_size;
  // Prefixing the length makes the encoding of salt and source unique.
  std::string& salt = request->params.cache_salt;
  salt = Concat(salt.size(), ":", salt);
  salt.append(reinterpret_cast<const char*>(tokens.data()),
              tokens.size() * sizeof(TokenId));
  tokens.resize(layout.end, 0);
  const std::vector<TokenId> decoder_prompt =
      DecoderPromptOf(model, request->params);
  tokens.insert(tokens.end(), decoder_prompt.begin(), decoder_prompt.end());
  return layout;
}

}  // namespace espalier
