#include "examples/cli/printing.h"

#include <cstdio>

#include "base/status.h"

namespace espalier::cli {

void PrintHypotheses(const Answer& answer) {
  for (size_t i = 0; i < answer.texts.size(); ++i) {
    std::printf("  %8.4f  %s\n", answer.result->hypotheses[i].score,
                answer.texts[i].c_str());
  }
}

void PrintFailure(const std::string& text, const absl::Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "espalier: \"%s\": %s\n", text.c_str(),
               Message(status).c_str());
}

}  // namespace espalier::cli
