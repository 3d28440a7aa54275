// ServerOptions: the address of a server (server.h), its access control and its
// limits per client.
#pragma once

#include <cstdint>
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

namespace espalier {

class VoiceActivity;

namespace serve {

// Limits and means of /v1/audio.
struct SpeechOptions {
  int64_t max_audio_bytes = int64_t{25} << 20;  // a file
  // A file of a few bytes may have hours of audio.
  int64_t max_audio_seconds = 4 * 3600;
  // At a time; more wait. A window of each is decoded at a time.
  int max_transcriptions = 16;
  // Finds speech for calls with vad_filter, which are refused where it is null.
  std::shared_ptr<const VoiceActivity> voice_activity = nullptr;
};

struct ServerOptions {
  // An address of this machine, or a name. An address that other machines reach
  // needs api_keys, or `insecure`.
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: one that is free
  // Threads for input and output, tokenizing and JSON; 0: one for each CPU that
  // the process may use, at most 4.
  int num_threads = 0;
  http::Limits http = {};
  openai::Limits requests = {};
  // Without keys: length of the IPv6 prefix that identifies a client's tenant;
  // an IPv4 address identifies it as a whole. 0: all clients are one tenant.
  int tenant_prefix_bits = 64;
  // Limit on the estimated memory of all calls together: long bodies, their
  // lists, log-probabilities of prompts.
  int64_t max_held_bytes = int64_t{2} << 30;

  ApiKeys api_keys = {};  // empty: no key is needed
  bool insecure = false;  // allows other machines to connect without a key
  // True: clients may call /reset_prefix_cache, and replace and remove
  // catalogues of items, which affects all of them.
  bool allow_control = false;
  // Further origins of web pages that may call the server.
  AllowedOrigins allowed_origins = {};

  // The name of the model for clients; empty: that of its directory.
  std::string model_name = {};
  // Other names that calls may have for it; answers have the first.
  std::vector<std::string> model_aliases = {};
  // Defaults for fields that requests leave open, as a JSON object of the
  // fields of /v1/completions; empty: none. They override the model's
  // generation_config.json.
  std::string defaults = {};
  // The format in which the model calls tools; unset: by its chat template
  // (text/chat/tool_call_format.h).
  std::optional<ToolCallFormat> tool_call_format = {};
  // Reports the load (load_report.h) with every answer, not only with answers
  // to clients that request it.
  bool always_reports_load = false;
  // A file descriptor that gets a line for each answer (request_log.h), open as
  // long as the server lives; -1: none does.
  int request_log_fd = -1;
  // Traces for GET /v1/requests/{id}/trace; also the trace sink of the
  // generator. Null: not served.
  std::shared_ptr<const RequestTraces> traces = nullptr;
  // Storage of files and batches.
  JobOptions jobs = {};
  SpeechOptions speech = {};
};

// True if `host` is an address of the loopback network, or "localhost".
bool IsLoopback(const std::string& host);

// True if only this machine reaches `host`: all of its addresses are of the
// loopback network. A name is looked up, which blocks.
// Errors: kNotFound naming a host without an address.
absl::StatusOr<bool> ReachesOnlyThisMachine(const std::string& host);

// Errors: kInvalidArgument naming the option and its value; kNotFound naming a
// host without an address if no key is needed.
absl::Status CheckServerOptions(const ServerOptions& options);

}  // namespace serve
}  // namespace espalier
