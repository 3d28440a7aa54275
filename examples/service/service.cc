// The generation part of a translation service: blocking calls from many
// threads, with timeouts and disconnecting clients; streamed text; stop
// strings; shutdown while calls run.
#include <cstdio>
#include <thread>

#include "espalier/generator.h"

namespace {

using namespace espalier;

// All members may be called on any thread. Each call blocks its own; model,
// engine and timeouts run on threads of the generator's.
class Translator {
 public:
  explicit Translator(Generator generator) : generator_(std::move(generator)) {}

  // The best of four beams. kResourceExhausted: too busy, try again later.
  absl::StatusOr<std::string> Translate(const std::string& sentence,
                                        std::stop_token client_gone) {
    absl::StatusOr<Generation> output = generator_.Generate(
        RequestFor(sentence), {absl::Seconds(60), std::move(client_gone)});
    if (!output.ok()) return output.status();
    return output->texts[0];
  }

  // Writes what all beams agree on as soon as they do; a write that fails ends
  // it.
  absl::Status TranslateTo(const std::string& sentence, std::FILE* client) {
    const auto write = [&](const StreamEvent& event) {
      return std::fputs(std::get<StablePrefixEvent>(event).text.c_str(),
                        client) >= 0;
    };
    return generator_
        .Stream(RequestFor(sentence), write, {.timeout = absl::Seconds(60)})
        .status();
  }

  // Ends the calls that run with kCancelled, and refuses others.
  void Shutdown() { generator_.Shutdown("the service shuts down"); }

 private:
  static GenerationRequest RequestFor(const std::string& sentence) {
    GenerationRequest request{sentence};
    request.params.num_beams = 4;
    request.params.stop = {",", "."};
    return request;
  }

  Generator generator_;
};

// Runs one client on a thread of its own.
void Ask(Translator& translator, const std::string& sentence,
         std::string* answer) {
  const std::stop_source client;
  const auto text = translator.Translate(sentence, client.get_token());
  *answer = sentence + " -> " + (text.ok() ? *text : text.status().ToString());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "models/en-fr";
  const std::string device = argc > 2 ? argv[2] : "cpu";
  absl::StatusOr<Generator> generator =
      Generator::Load(directory, {.device = device, .max_waiting = 100});
  if (!generator.ok()) {
    std::fprintf(stderr, "%s\n", generator.status().ToString().c_str());
    return 1;
  }
  Translator translator(*std::move(generator));
  const std::string sentences[] = {"It rains.", "Where is the station?",
                                   "I am hungry.", "Yes, please."};
  std::string answers[4];
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back(Ask, std::ref(translator), sentences[i],
                           &answers[i]);
    }
  }
  for (const std::string& answer : answers) std::printf("%s\n", answer.c_str());
  const absl::Status streamed =
      translator.TranslateTo("She is waiting for the bus.", stdout);
  std::printf(" [%s]\n", streamed.ToString().c_str());
  translator.Shutdown();
  Ask(translator, "Are you there?", &answers[0]);
  std::printf("%s\n", answers[0].c_str());
}
