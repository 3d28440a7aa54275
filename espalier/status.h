// Errors: an absl::Status whose code determines the caller's action and whose
// message names the values.
//
//   kInvalidArgument     the request, option or file named is wrong
//   kNotFound            the file, or what is asked for by name, is not there
//   kResourceExhausted   there is no memory; GetPayload(kTooFewPages) tells the
//                        request that can never fit
//   kFailedPrecondition  the call is wrong in this state, or no token, or no
//                        device, can be had
//   kCancelled           the caller, a shutdown or the end of a context
//   kOutOfRange          a text has more tokens than were asked for
//   kInternal            a model, or a device, failed
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "batcher/scheduler/too_few_pages.h"
