// SourceLayout: place of an encoder-decoder model's source in the sequences of
// a request.
//
// The encoder reads a request's prompt, its source, and computes keys and
// values of each source token for every layer of the decoder (cross-attention).
// These have the format of the decoder's own keys and values, so they are
// stored in the same kind of pages, at the beginning of each sequence:
//
//   positions  [0, num_tokens)    the source
//              [num_tokens, end)  padding: the page's rest
//              [end, ...)         the decoder's tokens: its prompt
//                                 (request/decoder_prompt.h), then generated
//                                 tokens
//
// So the source is a prefix that all beams and samples share, on pages of their
// own. Its pages are shared, counted, kept in the prefix tree, preempted and
// resumed as a prompt's are. But an encoder attends in both directions, so a
// page is useless for any other source: the salt gives each source its own root
// in the tree (pages/prefix_tree.h).
#pragma once

#include "base/model_description.h"
#include "request/request.h"

namespace espalier {

struct SourceLayout {
  int num_tokens = 0;  // 0: the model has no encoder
  int end = 0;         // a multiple of page_size
};

// Replaces the prompt of `request`, the source, by the beginning of its
// sequences: source, padding, decoder_prompt. Adds the source's tokens to
// cache_salt, so that only requests with the same source share its pages. Does
// nothing if the model has no encoder.
// REQUIRES: `request` has passed ValidateRequest.
SourceLayout LayOutSource(const ModelDescription& model, Request* request);

}  // namespace espalier
