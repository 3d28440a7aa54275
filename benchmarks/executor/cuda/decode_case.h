// A case of the decode benchmarks: a model's shape, and the number and length
// of the requests and beams that decode at once.
//
//   8b:8x4/512    the 8b shape, 8 requests with 4 beams each, 512 prompt tokens
//   8b:8s4/512    the same with 4 samples each, drawn with a seed and top_p
//   whisper-base:8x5/1500
//                 8 sources of features, which are 1,500 positions each
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/transformer_config.h"
#include "request/generation_params.h"

namespace espalier {

struct DecodeCase {
  std::string name;   // as above
  std::string model;  // 68m, 0.6b, 1b, 8b, mistral-7b, gemma2-2b, gemma3-1b,
                      // gpt2, or whisper- and base, large or turbo
  int num_requests = 1;
  int num_beams = 1;  // or samples
  bool samples = false;
  int num_prompt_tokens = 1;

  // Errors: kInvalidArgument quoting the text.
  static absl::StatusOr<DecodeCase> Parse(const std::string& text);

  const TransformerConfig& shape() const;
  int num_rows() const { return num_requests * num_beams; }

  // Returns the params of request `i`: beams, or samples with a seed. It
  // generates exactly `num_new_tokens`.
  GenerationParams Params(int i, int num_new_tokens) const;

  // Bytes that a step reads at least, in 2-byte numbers, when each beam has
  // `num_generated` tokens: all weights but the table of embeddings (or that,
  // where it is the output projection too), and keys and values, those of a
  // prompt once a request. Those of layers may have other sizes.
  double StepBytes(int num_generated, int layer_weight_bytes = 2) const;
  // Multiplications and additions of its matrix products and attention.
  double StepFlops(int num_generated) const;

 private:
  double NumLayerWeights() const;
  double NumWeights() const;
};

}  // namespace espalier
