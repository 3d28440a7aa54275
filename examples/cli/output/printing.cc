#include "examples/cli/output/printing.h"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"
#include "examples/cli/output/hanging_indent.h"

namespace espalier::cli {
namespace {

// As text in quotes, or by its name where it has no text of its own.
std::string Named(TokenId token, const Tokenizer& tokenizer) {
  const TokenSpelling spelling = tokenizer.spellings().Of(token);
  const bool has_text = spelling.kind == SpellingKind::kText ||
                        spelling.kind == SpellingKind::kSpacedText;
  if (has_text) return WriteJson(json::value(spelling.text));
  const std::string piece = tokenizer.Spelling(token);
  return piece.empty() ? Concat("#", token) : piece;
}

std::string Decimal(float log_prob) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", log_prob);
  return text;
}

std::string FormatBest(std::span<const TokenScore> best,
                       const Tokenizer& tokenizer) {
  std::string text;
  for (const TokenScore& token : best) {
    if (!text.empty()) text += ", ";
    text += Named(token.token, tokenizer) + " " + Decimal(token.log_prob);
  }
  return text;
}

// Returns a table of one line per token; empty without tokens:
//       log prob   rank  token
//        -0.3120      1  " Où"  of " Où" -0.3120, " où" -2.7381
// Tokens without a text of their own have their name in the vocabulary, </s> or
// <0x0A>, or #32001 if it has none.
std::string FormatLogProbs(std::span<const TokenLogProb> logprobs,
                           const Tokenizer& tokenizer) {
  if (logprobs.empty()) return "";
  std::string text = "      log prob   rank  token\n";
  for (const TokenLogProb& token : logprobs) {
    char line[64];
    std::snprintf(line, sizeof line, "    %10.4f %6d  ", token.log_prob,
                  token.rank);
    text += line + Named(token.token, tokenizer);
    const std::string best = FormatBest(token.best, tokenizer);
    if (!best.empty()) text += "  of " + best;
    text += '\n';
  }
  return text;
}

}  // namespace

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
