// ServerDefaults: the defaults of a server, by flags and --defaults FILE:
// params of calls that do not give them.
//
// Thread safety: values; functions without state.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/model_description.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "request/resolve_defaults.h"

namespace espalier::openai {

class ServerDefaults {
 public:
  // `json`: an object of params, by the names that calls have for them.
  // `limits` are the server's, as of a call.
  // Errors: kInvalidArgument naming the byte, or the field and the value.
  static absl::StatusOr<ServerDefaults> Read(std::string_view json,
                                             const Limits& limits = {});

  // Checks that a request of `model` can have all of them.
  // Errors: kInvalidArgument naming the field, as `json` did, and the value.
  absl::Status Check(const ModelDescription& model) const;

  // Params of the request format, and their values as JSON; dependencies first.
  const NamedValues& values() const { return level_.values; }
  const ServerValues& level() const { return level_; }
  // A call that gives only these params.
  const Call& call() const { return call_; }

 private:
  ServerValues level_;
  Call call_;
};

}  // namespace espalier::openai
