// GET /tokenizer_info, as vLLM has it: what a client needs of a tokenizer to do
// without its files.
#pragma once

#include <string>

#include "espalier/generator.h"

namespace espalier::serve {

// {"tokenizer_class", "bos_token", "eos_token", "unk_token", "pad_token", ...,
//  "chat_template", "model_max_length", "vocab_size"}: the class and the
// special tokens of the directory's files, or else the tokens of the tokenizer
// itself; null for what the model lacks. Of a model without a tokenizer it is
// empty.
std::string TokenizerInfo(const Generator& generator,
                          const std::string& directory);

}  // namespace espalier::serve
