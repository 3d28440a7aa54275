#include "examples/cli/printing.h"

#include "absl/strings/str_format.h"
#include "examples/cli/reports.h"

namespace espalier::cli {

std::string FormatHypotheses(const Answer& answer,
                             std::span<const int> samples) {
  const Result& result = *answer.result;
  std::string text;
  if (result.prompt_logprobs) {
    text += FormatLogProbs(*result.prompt_logprobs, *answer.tokenizer);
  }
  for (size_t i = 0; i < answer.texts.size(); ++i) {
    const Hypothesis& hypothesis = result.hypotheses[i];
    if (!samples.empty()) text += absl::StrFormat("  [%d]", samples[i]);
    text += absl::StrFormat("  %8.4f  %s\n", hypothesis.score, answer.texts[i]);
    text += FormatLogProbs(hypothesis.logprobs, *answer.tokenizer);
  }
  if (result.threshold) {
    text += absl::StrFormat("  threshold %.4f\n", *result.threshold);
  }
  if (result.seed) text += absl::StrFormat("  seed %d\n", *result.seed);
  return text;
}

}  // namespace espalier::cli
