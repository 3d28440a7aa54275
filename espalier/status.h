// Errors: an absl::Status whose code determines the caller's action and whose
// message names the values.
//
//   kInvalidArgument     the request, option or file named is wrong
//   kNotFound            there is no such file, or nothing of that name
//   kResourceExhausted   there is no memory; GetPayload(kTooFewPages)
//   identifies
//                        a request that can never fit
//   kFailedPrecondition  the call is wrong in this state, every token is
//   masked,
//                        or there is no device
//   kCancelled           the caller, a shutdown or the end of a context
//   kOutOfRange          a text has more tokens than the limit
//   kInternal            a model, or a device, failed
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "batcher/scheduler/too_few_pages.h"
