// The embedded translator, from text to text.
#include <cstdio>

#include "espalier/generator.h"

using namespace espalier;

int Fail(const absl::Status& error) {
  std::fprintf(stderr, "%s\n", error.ToString().c_str());
  return 1;
}

int main(int argc, char** argv) {
  // Model and engine run on threads of the generator's own.
  const std::string directory = argc > 1 ? argv[1] : "models/en-fr";
  absl::StatusOr<Generator> generator = Generator::Load(directory);
  if (!generator.ok()) return Fail(generator.status());

  GenerationRequest request{"Where is the station?"};
  request.params.num_beams = 4;
  request.params.num_return_sequences = 2;
  // Blocks this thread; any number of others may call, too.
  const absl::StatusOr<Generation> output =
      generator->Generate(request, {.timeout = absl::Seconds(60)});
  if (!output.ok()) return Fail(output.status());
  for (size_t i = 0; i < output->texts.size(); ++i) {
    std::printf("%8.4f  %s\n", output->hypotheses[i].score,
                output->texts[i].c_str());
  }
}
