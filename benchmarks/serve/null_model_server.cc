// The server over a model that computes nothing, for benchmarks/serve/serve.py,
// to measure the cost of serving and scheduling.
//
//   null_model_server [--port PORT] [--io-threads N] [--max-waiting N]
//                     [--max-running N] [--step-us N]
//
// --step-us: minimum time of each step of the model, for a server whose model
// is the bottleneck.
//
// Prints its port. Ends with its standard input.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "espalier/generator.h"
#include "exec_request/model.h"
#include "serve/server.h"

namespace {

using namespace espalier;

// After any text token 7 is the likeliest.
class NullModel : public Model {
 public:
  explicit NullModel(absl::Duration step) : step_(step) {
    description_.vocab_size = 32;
    description_.max_context = 4096;
    description_.eos_token_ids = {0};
    description_.num_pages = 1 << 16;
    description_.page_size = 16;
  }

  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan&, std::span<float> logits) override {
    if (step_ > absl::ZeroDuration()) absl::SleepFor(step_);
    std::ranges::fill(logits, 0);
    for (size_t i = 7; i < logits.size(); i += description_.vocab_size) {
      logits[i] = 1;
    }
    return absl::OkStatus();
  }

 private:
  const absl::Duration step_;
  ModelDescription description_;
};

int Fail(const absl::Status& error) {
  std::fprintf(stderr, "%s\n", error.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  serve::ServerOptions options;
  options.port = 0;
  options.num_threads = 1;
  options.model_name = "null";
  GeneratorOptions generator_options = {.num_threads = 1};
  absl::Duration step;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (option == "--port") options.port = value;
    if (option == "--io-threads") options.num_threads = value;
    if (option == "--max-waiting") generator_options.max_waiting = value;
    if (option == "--max-running") {
      generator_options.max_running = value;
      generator_options.max_step_tokens = std::max(value, 128);
    }
    if (option == "--step-us") step = absl::Microseconds(value);
  }
  auto server = serve::Server::Listen(options);
  if (!server.ok()) return Fail(server.status());
  absl::StatusOr<Generator> generator = Generator::Create(
      std::make_shared<NullModel>(step), nullptr, generator_options);
  if (!generator.ok()) return Fail(generator.status());
  const absl::Status ready = (*server)->Serve(*std::move(generator), "null");
  if (!ready.ok()) return Fail(ready);
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
}
