// Speculation: a draft model drafts tokens, and a step of the model verifies
// several of them. The text is the same, in fewer steps.
#include <iostream>
#include <string>

#include "espalier/generator.h"

using namespace espalier;

int Fail(const absl::Status& error) {
  std::cerr << error << '\n';
  return 1;
}

int main(int argc, char** argv) {
  const std::string models = argc > 1 ? argv[1] : "models";
  absl::StatusOr<Generator> generator = Generator::Load(
      models + "/en-fr", {.draft_model = models + "/en-fr-draft"});
  if (!generator.ok()) return Fail(generator.status());

  GenerationRequest request{"Where is the station?"};
  request.params.speculate = {.method = SpeculationMethod::kDraft,
                              .num_tokens = 4};
  const absl::StatusOr<Generation> output = generator->Generate(request);
  if (!output.ok()) return Fail(output.status());
  const Usage& usage = output->usage;
  std::cout << output->texts[0] << '\n'
            << usage.num_steps << " steps; of " << usage.num_drafted_tokens
            << " drafted tokens " << usage.num_accepted_tokens
            << " were accepted\n";
}
