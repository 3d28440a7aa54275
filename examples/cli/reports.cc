#include "examples/cli/reports.h"

#include <cstdio>

#include "base/json.h"

namespace espalier::cli {
namespace {

// As text in quotes, or its id where it has none of its own.
std::string Named(TokenId token, const TokenSpellings& spellings) {
  const TokenSpelling spelling = spellings.Of(token);
  const bool has_text = spelling.kind == SpellingKind::kText ||
                        spelling.kind == SpellingKind::kSpacedText;
  if (!has_text) return std::to_string(token);
  return WriteJson(json::value(spelling.text));
}

std::string Decimal(float log_prob) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", log_prob);
  return text;
}

std::string FormatBest(std::span<const TokenScore> best,
                       const TokenSpellings& spellings) {
  std::string text;
  for (const TokenScore& token : best) {
    if (!text.empty()) text += ", ";
    text += Named(token.token, spellings) + " " + Decimal(token.log_prob);
  }
  return text;
}

}  // namespace

std::string FormatLogProbs(std::span<const TokenLogProb> logprobs,
                           const TokenSpellings& spellings) {
  if (logprobs.empty()) return "";
  std::string text = "      log prob   rank  token\n";
  for (const TokenLogProb& token : logprobs) {
    char line[64];
    std::snprintf(line, sizeof line, "    %10.4f %6d  ", token.log_prob,
                  token.rank);
    text += line + Named(token.token, spellings);
    const std::string best = FormatBest(token.best, spellings);
    if (!best.empty()) text += "  of " + best;
    text += '\n';
  }
  return text;
}

}  // namespace espalier::cli
