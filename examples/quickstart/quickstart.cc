// The embedded translator in the engine, from text to text.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "model/llama_model.h"
#include "text/prompt_template.h"
#include "text/tokenizer.h"

using namespace espalier;

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "models/en-fr";
  auto threads = ThreadPool::Create(2).value();
  auto model = LlamaModel::Load(directory, {}, threads).value();
  auto tokenizer = Tokenizer::Load(directory + "/tokenizer.model").value();
  auto templates = PromptTemplates::Load(directory, *tokenizer).value();

  boost::asio::io_context context;
  auto steps = ModelExecutor::Create(std::move(model), threads).value();
  auto engine = Engine::Create(context.get_executor(), steps).value();

  Request request;
  request.prompt_tokens = templates.default_template()
                              .Apply("Where is the station?", *tokenizer)
                              .value();
  request.params.num_beams = 4;
  request.params.num_return_sequences = 2;
  boost::asio::co_spawn(
      context, engine.Generate(request),
      [&](std::exception_ptr, const absl::StatusOr<Result>& result) {
        for (const Hypothesis& hypothesis : result.value().hypotheses) {
          std::printf("%8.4f  %s\n", hypothesis.score,
                      tokenizer->Decode(hypothesis.tokens).value().c_str());
        }
      });
  context.run();
}
