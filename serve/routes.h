// The routes of a server: a table of what it answers, and to which calls.
//
// A path is found with or without its "/v1", which a client's base URL may
// have or lack; HEAD is answered as GET.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "http/message.h"
#include "serve/route_call.h"
#include "serve/server_state.h"

namespace espalier::serve {

struct Route {
  // Condition to answer.
  enum class Needs {
    kNothing,     // always, without a key too
    kClients,     // always
    kModel,       // once there is a model
    kGeneration,  // from then on until the server drains
  };
  // The body of a POST or PUT.
  enum class Takes { kJson, kFileForm, kAudioForm, kLines, kNothing };

  std::string_view method;
  std::string_view path;  // {id} stands for any segment
  RouteWork (*answer)(ServerState& server, RouteCall& call);
  Needs needs = Needs::kClients;
  Takes takes = Takes::kJson;
  bool is_control = false;  // with ServerOptions::allow_control alone

  bool takes_form() const {
    return takes == Takes::kFileForm || takes == Takes::kAudioForm;
  }
  // True for the routes of files and batches.
  bool is_job() const {
    return path.starts_with("/v1/files") || path.starts_with("/v1/batches");
  }
};

std::span<const Route> Routes();

// Returns null if there is no such route; then `*allowed` lists the methods of
// this path, if it has any. `*id` is the part that {id} stands for.
const Route* FindRoute(const http::Request& request, std::string* id,
                       std::string* allowed);

// Returns "; did you mean ...?" if a route has a similar path; else "".
std::string RouteHint(std::string_view path);

}  // namespace espalier::serve
