// Your own model in the engine: two methods, and beam search comes with it.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"

namespace {

using namespace espalier;

// Counts: after token t, t + 1 is likely, t + 2 less so. Token 9 is the EOS.
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

}  // namespace

int main() {
  auto model = std::make_shared<CountingModel>();
  auto threads = std::make_shared<ThreadPool>();  // this one
  boost::asio::io_context context;
  auto steps = ModelExecutor::Create(model, threads).value();
  auto engine = Engine::Create(context.get_executor(), steps).value();

  Request request{.prompt_tokens = {0, 1, 2}, .params = {}};
  request.params.num_beams = 4;
  request.params.num_return_sequences = 3;
  int exit_code = 1;
  boost::asio::co_spawn(
      context, engine.Generate(request),
      [&](std::exception_ptr, const absl::StatusOr<Result>& result) {
        if (!result.ok()) {
          std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
          return;
        }
        for (const Hypothesis& hypothesis : result->hypotheses) {
          std::printf("%8.4f ", hypothesis.score);
          for (const TokenId t : hypothesis.tokens) std::printf(" %d", t);
          std::printf("\n");
        }
        exit_code = 0;
      });
  context.run();
  return exit_code;
}
