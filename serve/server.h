// Server: a Generator behind HTTP, with the routes and fields of OpenAI's API
// and of vLLM (docs/server.md).
//
//   ASSIGN_OR_RETURN(auto server, serve::Server::Listen({.port = 8000}));
//   ASSIGN_OR_RETURN(Generator generator, Generator::Load("models/en-fr"));
//   server->Serve(std::move(generator));
//   ...
//   server->Drain(absl::Seconds(30));
//
// It listens before there is a model: /health says that the process lives, and
// /ready that it cannot answer yet.
//
// A request is read, checked and tokenized, and its answer written, on the
// thread of its connection; it runs in the generator's engine, and nothing
// there waits for a client. A client that goes ends its requests.
//
// Thread safety: any thread calls anything, but no thread of the server's or
// the generator's calls Drain, Stop or the destructor.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "espalier/generator.h"
#include "serve/server_options.h"

namespace espalier::serve {

class ServerCore;  // serve/server_core.h

class Server {
 public:
  // Errors: those of CheckServerOptions and http::Server::Listen.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(
      const ServerOptions& options);
  ~Server();  // Stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // From now on it is ready.
  //   model  what /v1/models says that it is: its directory
  // Errors: kInvalidArgument naming a field of ServerOptions::defaults that
  // this model cannot have, or if the model's name is not UTF-8;
  // kFailedPrecondition if it has a model or has stopped.
  absl::Status Serve(Generator generator, const std::string& model);

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"

  // Is not ready from now on, and refuses requests with 503; waits until those
  // that run have been answered. After `timeout` the others end, each with an
  // error. Returns how many those were.
  int Drain(absl::Duration timeout);
  // Ends all requests, each with an error, closes all connections and waits for
  // the threads.
  void Stop();

 private:
  explicit Server(std::unique_ptr<ServerCore> core);

  std::unique_ptr<ServerCore> core_;
};

}  // namespace espalier::serve
