// A server of OpenAI's API over a Generator, like `espalier serve`: it listens,
// loads a model, answers until it is stopped, and drains.
#include "serve/server.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "espalier/generator.h"

using namespace espalier;

int Fail(const absl::Status& error) {
  std::fprintf(stderr, "%s\n", error.ToString().c_str());
  return 1;
}

int main(int argc, char** argv) {
  const std::string model = argc > 1 ? argv[1] : "models/en-fr";
  // Before there are threads, which inherit it: signals wait for sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  // /health answers from here on, /ready once there is a model.
  serve::ServerOptions options;
  options.port = argc > 2 ? std::atoi(argv[2]) : 8000;
  options.defaults = R"({"num_beams": 4})";  // where requests have none
  auto server = serve::Server::Listen(options);
  if (!server.ok()) return Fail(server.status());
  auto generator = Generator::Load(model, {.max_waiting = 100});
  if (!generator.ok()) return Fail(generator.status());
  const absl::Status served = (*server)->Serve(*std::move(generator), model);
  if (!served.ok()) return Fail(served);
  std::fprintf(stderr, "listening on %s\n", (*server)->url().c_str());

  int signal = 0;
  sigwait(&signals, &signal);
  return (*server)->Drain(absl::Seconds(30)) == 0 ? 0 : 1;
}
