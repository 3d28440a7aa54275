// Reads a translation while it is searched for, and one when it is there, with
// the installed headers alone.
#include <espalier/chat.h>
#include <espalier/defaults.h>
#include <espalier/engine.h>
#include <espalier/executor.h>
#include <espalier/model.h>
#include <espalier/request.h>
#include <espalier/result.h>
#include <espalier/status.h>
#include <espalier/tokenizer.h>
#include <espalier/trace.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "no_macros.h"

namespace {

using boost::asio::awaitable;

// Counts the events of a search.
class Counter : public espalier::TraceSink {
 public:
  void On(const espalier::TraceEvent&) override { ++num_events_; }
  int num_events() const { return num_events_; }

 private:
  int num_events_ = 0;
};

// All that a request passes through.
struct Translator {
  std::shared_ptr<espalier::Tokenizer> tokenizer;
  espalier::PromptTemplate prompt;
  std::shared_ptr<espalier::StepExecutor> steps;
  espalier::GenerationDefaults defaults;
};

// Reads defaults of requests from a file, as a model has them in its directory.
absl::StatusOr<espalier::GenerationDefaults> LoadDefaults(
    const espalier::ModelDescription& model) {
  const std::string path =
      std::filesystem::temp_directory_path() /
      ("espalier_consumer_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << R"({"num_beams": 4, "num_return_sequences": 2})";
  auto defaults = espalier::LoadModelDefaults(path, "");
  std::filesystem::remove(path);
  if (!defaults.ok()) return defaults.status();
  const absl::Status status =
      espalier::FitDefaults(path, model, /*has_tokenizer=*/true, &*defaults);
  if (!status.ok()) return status;
  return defaults;
}

// The example of <espalier/defaults.h>.
absl::Status TakeModelDefaults(const std::string& directory,
                               const espalier::ModelDescription& model,
                               const espalier::Tokenizer* tokenizer) {
  using namespace espalier;  // NOLINT
  Request request;
  request.prompt_tokens = {4, 5};
  // clang-format off
  absl::StatusOr<GenerationDefaults> defaults =
      LoadModelDefaults("auto", directory);
  if (!defaults.ok()) return defaults.status();
  const absl::Status fits =
      FitDefaults("auto", model, /*has_tokenizer=*/true, &*defaults);
  if (!fits.ok()) return fits;
  // For each request:
  const absl::StatusOr<NamedValues> taken = CompleteRequest(
      *defaults, /*given=*/std::nullopt, tokenizer, model, &request);
  if (!taken.ok()) return taken.status();
  // clang-format on
  return absl::OkStatus();
}

absl::StatusOr<Translator> Load(const std::string& directory) {
  auto threads = espalier::ThreadPool::Create(2);
  if (!threads.ok()) return threads.status();
  auto model = espalier::TransformerModel::Load(directory, {}, *threads);
  if (!model.ok()) return model.status();
  auto steps = espalier::ModelExecutor::Create(*std::move(model), *threads);
  if (!steps.ok()) return steps.status();
  auto tokenizer = espalier::Tokenizer::Load(directory + "/tokenizer.model");
  if (!tokenizer.ok()) return tokenizer.status();
  const auto templates =
      espalier::PromptTemplates::Load(directory, **tokenizer);
  if (!templates.ok()) return templates.status();
  (*tokenizer)->MarkSpecial(templates->tokens());
  auto defaults = LoadDefaults((*steps)->description());
  if (!defaults.ok()) return defaults.status();
  return Translator{*std::move(tokenizer), templates->default_template(),
                    *std::move(steps), *std::move(defaults)};
}

// Continuations, prepared before they run; and lists that are edited.
awaitable<absl::Status> Score(espalier::Engine& engine,
                              espalier::Request request) {
  request.params.stop.push_back("!");
  request.params.stop.Edit().clear();
  request.params = {};
  request.continuations = {{7, 8}, {9}};
  if (!espalier::OnlyScores(request)) {
    co_return absl::InternalError("it generates, too");
  }
  if (espalier::NumContinuationTokens(request) != 3) {
    co_return absl::InternalError("not all continuations count");
  }
  auto prepared = engine.Prepare(std::move(request));
  if (!prepared.ok()) co_return prepared.status();
  const auto scored = co_await engine.Generate(*std::move(prepared));
  if (!scored.ok()) co_return scored.status();
  if (engine.num_foreground_waiting() != 0) {
    co_return absl::InternalError("it waits after its end");
  }
  if (co_await engine.ResetPrefixCache() < 0) {
    co_return absl::InternalError("fewer pages than none");
  }
  co_return absl::OkStatus();
}

awaitable<absl::Status> Translate(const Translator& translator,
                                  espalier::Engine& engine) {
  espalier::Request request;
  auto prompt =
      translator.prompt.Apply("Where is the station?", *translator.tokenizer);
  if (!prompt.ok()) co_return prompt.status();
  request.prompt_tokens = *std::move(prompt);
  request.num_continued = 0;  // a translation is a text of its own
  const auto taken = espalier::CompleteRequest(
      translator.defaults, std::nullopt, translator.tokenizer.get(),
      translator.steps->description(), &request);
  if (!taken.ok()) co_return taken.status();
  if (taken->size() != 2) co_return absl::InternalError("not all defaults");

  auto stream = co_await engine.Stream(request);
  if (!stream.ok()) co_return stream.status();
  std::string streamed;
  while (true) {
    const auto event = co_await stream->Next();
    if (!event.ok()) co_return event.status();
    if (!event->has_value()) break;
    if (const auto* prefix =
            std::get_if<espalier::StablePrefixEvent>(&**event)) {
      streamed += prefix->text;
    }
  }

  const absl::StatusOr<espalier::Result> result =
      co_await engine.Generate(request);
  if (!result.ok()) co_return result.status();
  for (const espalier::Hypothesis& hypothesis : result->hypotheses) {
    const auto text = translator.tokenizer->Decode(hypothesis.tokens);
    if (!text.ok()) co_return text.status();
    std::printf("%8.4f  %s\n", hypothesis.score, text->c_str());
    if (text->compare(0, streamed.size(), streamed) != 0) {
      co_return absl::InternalError("it does not begin as the stream told");
    }
  }

  if (const absl::Status status = co_await Score(engine, request);
      !status.ok()) {
    co_return status;
  }

  request.params.num_beams = 0;
  const auto refused = co_await engine.Generate(std::move(request));
  std::printf("%s\n", refused.status().ToString().c_str());
  co_await engine.Shutdown();
  co_return absl::OkStatus();
}

// A prompt that a chat template makes.
absl::Status CheckChat(const espalier::Tokenizer& tokenizer) {
  const auto chat = espalier::ChatTemplate::Parse(
      "{{ bos_token }}{{ messages[0].content }}", {{"bos_token", "<s>"}});
  if (!chat.ok()) return chat.status();
  espalier::ChatInputs inputs;
  inputs.messages.push_back(
      espalier::json::object{{"role", "user"}, {"content", "It rains."}});
  const auto text = (*chat)->Render(inputs);
  if (!text.ok()) return text.status();
  const auto tokens = espalier::EncodeChat(*text, tokenizer);
  if (!tokens.ok()) return tokens.status();
  return tokens->front() == tokenizer.bos_id() ? absl::OkStatus()
                                               : absl::InternalError("no BOS");
}

absl::Status Run(const std::string& directory) {
  const absl::StatusOr<Translator> translator = Load(directory);
  if (!translator.ok()) return translator.status();
  if (const absl::Status status =
          TakeModelDefaults(directory, translator->steps->description(),
                            translator->tokenizer.get());
      !status.ok()) {
    return status;
  }
  boost::asio::io_context context;
  const auto counter = std::make_shared<Counter>();
  auto engine = espalier::Engine::Create(
      context.get_executor(), translator->steps,
      {.scheduler = {.trace = counter}, .tokenizer = translator->tokenizer});
  if (!engine.ok()) return engine.status();
  absl::Status status;
  boost::asio::co_spawn(
      context, Translate(*translator, *engine),
      [&](std::exception_ptr, const absl::Status& result) { status = result; });
  context.run();
  if (const absl::Status chat = CheckChat(*translator->tokenizer); !chat.ok()) {
    return chat;
  }
  if (counter->num_events() == 0) return absl::InternalError("no trace");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? argv[1] : "models/en-fr");
  if (status.ok()) return 0;
  std::cerr << status.ToString() << '\n';
  return 1;
}
