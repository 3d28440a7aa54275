#include "serve/server.h"

#include <utility>

#include "base/status.h"
#include "serve/server_core.h"

namespace espalier::serve {

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(
    const ServerOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ServerCore> core,
                   ServerCore::Listen(options));
  return std::unique_ptr<Server>(new Server(std::move(core)));
}

Server::Server(std::unique_ptr<ServerCore> core) : core_(std::move(core)) {}

Server::~Server() = default;

absl::Status Server::Serve(Generator generator, const std::string& model) {
  return core_->Serve(std::move(generator), model);
}

int Server::port() const { return core_->http().port(); }

std::string Server::url() const {
  return Concat("http://", core_->http().addresses().front());
}

int Server::Drain(absl::Duration timeout) { return core_->Drain(timeout); }

void Server::Stop() { core_->Stop(); }

}  // namespace espalier::serve
