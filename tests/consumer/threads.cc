// A program of threads that knows espalier/generator.h alone.
#include <espalier/generator.h>

#include <cstdio>

#include "no_macros.h"

int main(int argc, char** argv) {
  auto generator =
      espalier::Generator::Load(argc > 1 ? argv[1] : "models/en-fr");
  if (!generator.ok()) {
    std::fprintf(stderr, "%s\n", generator.status().ToString().c_str());
    return 1;
  }
  espalier::GenerationRequest request{"Where is the station?"};
  request.params.num_beams = 4;
  const auto output = generator->Generate(request);
  if (!output.ok() || output->texts.empty()) return 1;
  const espalier::GeneratorFigures figures = generator->Figures();
  std::printf("%s\n%d run, %d tokens returned\n", output->texts[0].c_str(),
              figures.num_running,
              static_cast<int>(figures.num_generated_tokens));
  return figures.num_pages_held;
}
