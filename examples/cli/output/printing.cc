#include "examples/cli/output/printing.h"

#include "absl/strings/str_format.h"
#include "examples/cli/output/hanging_indent.h"
#include "examples/cli/output/reports.h"

namespace espalier::cli {

std::string FormatHypotheses(const Generation& generation,
                             const Tokenizer& tokenizer,
                             std::span<const int> samples) {
  std::string text;
  if (generation.prompt_logprobs) {
    text += FormatLogProbs(*generation.prompt_logprobs, tokenizer);
  }
  for (size_t i = 0; i < generation.texts.size(); ++i) {
    const Hypothesis& hypothesis = generation.hypotheses[i];
    std::string score;
    if (!samples.empty()) score = absl::StrFormat("  [%d]", samples[i]);
    score += absl::StrFormat("  %8.4f  ", hypothesis.score);
    text += score + HangingIndent(score.size()).Add(generation.texts[i]) + "\n";
    text += FormatLogProbs(hypothesis.logprobs, tokenizer);
  }
  if (generation.threshold) {
    text += absl::StrFormat("  threshold %.4f\n", *generation.threshold);
  }
  if (generation.seed) text += absl::StrFormat("  seed %d\n", *generation.seed);
  return text;
}

}  // namespace espalier::cli
