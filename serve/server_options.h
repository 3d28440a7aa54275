// ServerOptions: what a server (server.h) listens on, who may use it, and what
// one client may take.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "http/limits.h"
#include "openai/call.h"
#include "serve/api_keys.h"
#include "serve/job_options.h"
#include "serve/origins.h"
#include "serve/request_traces.h"
#include "text/chat/tool_call_format.h"

namespace espalier::serve {

struct ServerOptions {
  // An address of this machine, or a name. One that others reach needs
  // api_keys, or `insecure`.
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: one that is free
  // That read and write, tokenize and make JSON; 0: one for each CPU that the
  // process may use, at most 4.
  int num_threads = 0;
  http::Limits http = {};
  openai::Limits requests = {};
  // Without keys: bits of a client's IPv6 address that name its tenant, which
  // an address of IPv4 does whole; 0: all clients are one tenant.
  int tenant_prefix_bits = 64;
  // That all calls hold together, by estimate: long bodies, the lists in them,
  // log-probabilities of prompts.
  int64_t max_held_bytes = int64_t{2} << 30;

  ApiKeys api_keys = {};  // empty: anybody may use it
  bool insecure = false;  // anybody may, from anywhere
  // True: clients may call /reset_prefix_cache, which affects all of them.
  bool allow_control = false;
  // Origins of web pages that may call it, beside its own.
  AllowedOrigins allowed_origins = {};

  // The name of the model for clients; empty: that of its directory.
  std::string model_name = {};
  // Other names that calls may have for it; answers have the first.
  std::vector<std::string> model_aliases = {};
  // Fields of requests that leave them open, as a JSON object of the fields of
  // /v1/completions; empty: none. They come before the model's
  // generation_config.json.
  std::string defaults = {};
  // The format in which the model calls tools; unset: by its chat template
  // (text/chat/tool_call_format.h).
  std::optional<ToolCallFormat> tool_call_format = {};
  // Reports the load (load_report.h) with every answer, not only with those to
  // clients that ask for it.
  bool always_reports_load = false;
  // A file descriptor that gets a line for each answer (request_log.h), open as
  // long as the server lives; -1: none does.
  int request_log_fd = -1;
  // Serves GET /v1/requests/{id}/trace: the sink that the generator was given,
  // too. Null: it does not.
  std::shared_ptr<const RequestTraces> traces = nullptr;
  // Where files and batches are kept.
  JobOptions jobs = {};
};

// True if `host` is an address of the loopback network, or "localhost".
bool IsLoopback(const std::string& host);

// True if only this machine reaches `host`: all of its addresses are of the
// loopback network. A name is looked up, which blocks.
// Errors: kNotFound naming a host without an address.
absl::StatusOr<bool> ReachesOnlyThisMachine(const std::string& host);

// Errors: kInvalidArgument naming the option and its value; of a server that
// anybody may use kNotFound naming a host without an address.
absl::Status CheckServerOptions(const ServerOptions& options);

}  // namespace espalier::serve
