// DescribeFeatures: names the features of a model for messages, one entry for
// each that the config turns on: "biases of q, k and v", "a window of 4096
// tokens in 16 of 32 layers". Sizes that every model has are not among them.
//
// Thread safety: a pure function.
#pragma once

#include <string>
#include <vector>

#include "model/transformer_config.h"

namespace espalier {

std::vector<std::string> DescribeFeatures(const TransformerConfig& config);

}  // namespace espalier
