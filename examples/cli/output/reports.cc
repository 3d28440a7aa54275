#include "examples/cli/output/reports.h"

#include <cstdio>

#include "base/json.h"
#include "base/status.h"

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

}  // namespace

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

}  // namespace espalier::cli
