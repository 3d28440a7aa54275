// PromptRequests: what a client's call becomes for the engine: its prompts as
// tokens, each with the params that count.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "espalier/generator.h"
#include "http/message.h"
#include "openai/answer.h"
#include "openai/call.h"
#include "serve/served_model.h"

namespace espalier::serve {

// A client's call without its body.
struct Caller {
  std::string request_id;  // never empty
  // Index of the API key that the client sent; -1: there are no keys. Requests
  // of different keys share no pages and are different tenants.
  int key = -1;
  // True for calls of a batch, which wait behind all others.
  bool is_stored = false;
  // Without keys: what a tenant's name begins with, by its address; empty: all
  // callers are one tenant.
  std::string address = {};
  // Headers of the answer, errors included.
  std::vector<http::Header> headers = {};
};

// The text for a call in the request log, "id=abc key=1".
std::string LogNote(const Caller& caller);

// Returns the address that identifies the tenant of the client at `client`: for
// IPv6 its first `prefix_bits`, all of which may belong to one client, as
// "2001:db8::/64". Empty if there is no address or `prefix_bits` is 0.
std::string TenantAddress(std::string_view client, int prefix_bits);

// Returns the owner of a request among the clients that share the queue: "key
// 0" or "address 127.0.0.1"; empty: none.
std::string OwnerOf(const Caller& caller);

// Has the call go by an id that its body gives.
void TakeRequestId(const std::string& id, Caller* caller);

// Prefixes the params that identify a request's owner with the owner, so that
// no caller can use another key's.
// Errors: kInvalidArgument if there is no room for it.
absl::Status AddOwner(const Caller& caller, GenerationParams* params);

// Returns the id of an answer in traces: its own, which clients may choose, and
// its owner. So no key can read the traces of another.
std::string TraceId(const Caller& caller, std::string_view id);

// The prompt of a call that a request belongs to, and the sentence in it.
struct RequestPlace {
  size_t prompt = 0;
  size_t sentence = 0;
  size_t num_sentences = 1;
  // The sentence, if there are several; empty once it is tokens.
  std::string text = {};
  // White space in front of the sentence in the answer.
  std::string separator = {};
};

// A prompt of a call, or a sentence of it, on its way to the engine.
struct PromptRequest {
  // Its request moves to `prepared`.
  EngineRequest engine = {};
  // Set once the checks of all prompts have passed. May lack its constraint
  // (Engine::Prepared::uncompiled).
  std::optional<Engine::Prepared> prepared = {};
  openai::PromptParts parts = {};
  RequestPlace place = {};
  std::string unparsed = {};   // FramedTokens::unparsed
  std::string whole_for = {};  // a field, as of FieldOfWholeText
};

// An error that the `finish` of a request returned: it names the prompt, the
// sentence, and the defaults of the server and its model that it is from.
absl::Status ErrorOfPrompt(const PromptRequest& request,
                           const openai::Call& call, const absl::Status& error);

// An error of one of a call's prompts. Where they are a list it says which:
// "prompt[1] has ..." where the prompt is the field, and if there are several
// "; of prompt[1]" after a message that has its number of tokens, or that no
// token is possible, whether or not others would fail, too. Other errors stay
// as they are.
absl::Status OfPrompt(const absl::Status& status, size_t prompt,
                      const openai::Call& call);

// One for each prompt of the call, or each of its sentences where it is split
// (espalier/split_text.h), in order; `id` is the answer's, `resolved`
// are the defaults that the call's decoder prompt has taken. Nothing of the
// call's lists is made twice.
// Errors: kInvalidArgument naming the field; as Generator::MakePrompt,
// chat_prompts and Prepare, and Engine::Prepare.
absl::StatusOr<std::vector<PromptRequest>> MakePromptRequests(
    const openai::Call& call, ServedModel& model, const Caller& caller,
    const std::string& id, const NamedValues& resolved);

// The parts that the answer is written with, one for each prompt.
std::vector<openai::PromptParts> TakeParts(
    std::vector<PromptRequest>* requests);

// Bytes that the log-probabilities of their prompts take in results.
int64_t PromptReportBytes(const std::vector<PromptRequest>& prompts);

// Sequences that they may have together.
int64_t NumRows(const std::vector<PromptRequest>& prompts);

}  // namespace espalier::serve
