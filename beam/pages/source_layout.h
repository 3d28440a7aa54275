// SourceLayout: where the source of an encoder-decoder model lies in the
// sequences of its request.
//
// The encoder reads a request's prompt, its source, and what it makes of each
// token are keys and values for every layer of the decoder (cross-attention).
// These have the form of the decoder's own keys and values, so they lie in
// pages like theirs, at the beginning of each sequence:
//
//   positions  [0, num_tokens)    the source
//              [num_tokens, end)  padding: the page's rest
//              [end, ...)         the decoder's tokens: what it begins with
//                                 (request/decoder_prompt.h), then what it
//                                 generates
//
// The source is thereby a beginning that all beams and samples have in common,
// on pages of their own: shared, counted, kept in the prefix tree, preempted
// and resumed as those of any prompt. But an encoder reads both ways, so no
// page of it is worth anything to another source: each has a root of its own in
// the tree (pages/prefix_tree.h), by its salt.
#pragma once

#include "exec_request/model_description.h"
#include "request/request.h"

namespace espalier {

struct SourceLayout {
  int num_tokens = 0;  // 0: the model has no encoder
  int end = 0;         // a multiple of page_size
};

// Replaces the prompt of `request`, the source, by what its sequences begin
// with: source, padding, decoder_prompt. Adds the source's tokens to
// cache_salt, so that only requests with the same source share its pages. Does
// nothing if the model has no encoder. REQUIRES: `request` has passed
// ValidateRequest.
SourceLayout LayOutSource(const ModelDescription& model, Request* request);

}  // namespace espalier
