// Your own model in the engine: two methods, and beam search comes with it.
#include <cmath>
#include <cstdio>
#include <memory>

#include "espalier/generator.h"
#include "espalier/model.h"

namespace {

using namespace espalier;

// Counts: after token t, t + 1 is likely, t + 2 less so. Token 9 is the EOS.
// Its methods run on a thread of the generator's, one call at a time.
class CountingModel : public Model {
 public:
  const ModelDescription& description() const override { return description_; }

  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    for (const PlanRow& row : plan.rows) {
      if (row.num_logits == 0) continue;
      const TokenId last = plan.row_tokens(row).back();
      for (TokenId next = 0; next < 10; ++next) {
        logits[row.first_logits * 10 + next] = -std::abs(next - (last + 1.3f));
      }
    }
    return absl::OkStatus();
  }

 private:
  const ModelDescription description_{.vocab_size = 10,
                                      .max_context = 64,
                                      .eos_token_ids = {9},
                                      .num_pages = 64};
};

int Fail(const absl::Status& error) {
  std::fprintf(stderr, "%s\n", error.ToString().c_str());
  return 1;
}

}  // namespace

int main() {
  absl::StatusOr<Generator> generator =
      Generator::Create(std::make_shared<CountingModel>());
  if (!generator.ok()) return Fail(generator.status());

  GenerationRequest request{std::vector<TokenId>{0, 1, 2}};
  request.params.num_beams = 4;
  request.params.num_return_sequences = 3;
  const absl::StatusOr<Generation> output = generator->Generate(request);
  if (!output.ok()) return Fail(output.status());
  for (const Hypothesis& hypothesis : output->hypotheses) {
    std::printf("%8.4f ", hypothesis.score);
    for (const TokenId t : hypothesis.tokens) std::printf(" %d", t);
    std::printf("\n");
  }
}
