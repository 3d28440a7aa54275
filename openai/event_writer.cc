#include "openai/event_writer.h"

#include <utility>

#include "openai/chunk_writer.h"
#include "openai/response.h"

namespace espalier::openai {

std::unique_ptr<EventWriter> MakeEventWriter(const Call& call,
                                             const AnswerHead& head,
                                             std::vector<PromptParts> prompts,
                                             const Tokenizer* tokenizer) {
  if (call.api == Api::kResponses) {
    return std::make_unique<ResponseWriter>(call, head, std::move(prompts[0]),
                                            tokenizer);
  }
  return std::make_unique<ChunkWriter>(call, head, std::move(prompts),
                                       tokenizer);
}

}  // namespace espalier::openai
