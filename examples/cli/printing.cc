#include "examples/cli/printing.h"

#include <cstdio>
#include <span>

#include "base/status.h"
#include "examples/cli/reports.h"

namespace espalier::cli {

void PrintHypotheses(const Answer& answer) {
  const Result& result = *answer.result;
  const auto print_logprobs = [&](std::span<const TokenLogProb> logprobs) {
    std::fputs(FormatLogProbs(logprobs, *answer.spellings).c_str(), stdout);
  };
  if (result.prompt_logprobs) print_logprobs(*result.prompt_logprobs);
  for (size_t i = 0; i < answer.texts.size(); ++i) {
    std::printf("  %8.4f  %s\n", result.hypotheses[i].score,
                answer.texts[i].c_str());
    print_logprobs(result.hypotheses[i].logprobs);
  }
  if (result.threshold) std::printf("  threshold %.4f\n", *result.threshold);
  if (result.seed) {
    std::printf("  seed %llu\n", static_cast<unsigned long long>(*result.seed));
  }
}

void PrintFailure(const std::string& text, const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "espalier: \"%s\": %s\n", text.c_str(),
               Message(status).c_str());
}

}  // namespace espalier::cli
