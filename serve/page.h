// The page of a server: one HTML file to try the model with. It loads nothing
// but this server's own API: /v1/models, /v1/completions, /v1/chat/completions
// and, of a speech model, /v1/audio as streams, and the trace of a request that
// has ended. Texts of users and models are only ever text in it.
//
// If the server needs an API key, a browser prompts for it as a password before
// it shows the page, and sends it with the page's calls. If the calls are still
// refused, the page prompts for the key, and keeps it only in memory.
#pragma once

#include <string_view>

namespace espalier::serve {

std::string_view PageHtml();

// The header Content-Security-Policy for it: the style and the script that are
// in it, by their hashes, and calls of the server it comes from; nothing else.
std::string_view PageContentSecurityPolicy();

}  // namespace espalier::serve
