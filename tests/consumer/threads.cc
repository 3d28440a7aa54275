// A multi-threaded program that includes only espalier/generator.h and stats.h.
#include <espalier/generator.h>
#include <espalier/stats.h>

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
  const espalier::GeneratorStats stats = generator->Stats();
  std::printf("%s\n%d run, %d tokens returned\n", output->texts[0].c_str(),
              stats.num_running, static_cast<int>(stats.num_generated_tokens));
  if (espalier::PrometheusText(stats).empty()) return 1;
  return stats.num_pages_held;
}
