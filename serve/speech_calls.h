// The answers of /v1/audio/transcriptions and /v1/audio/translations.
//
//   form ─ SpeechForm ─ WorkerThread: Transcriber ─ WriteSpeech
//                            └─ segments ─ events of a stream
//
// A transcription blocks a thread of its own (ServerState::transcribing), whose
// number is bounded; owners of requests take turns at them. It ends within a
// window when its client goes, its deadline passes, a client aborts it or the
// server stops.
//
// Thread safety: the thread of the call's connection.
#pragma once

#include "serve/route_call.h"
#include "serve/server_state.h"

namespace espalier::serve::routes {

RouteWork Transcriptions(ServerState& server, RouteCall& call);
RouteWork Translations(ServerState& server, RouteCall& call);

}  // namespace espalier::serve::routes
