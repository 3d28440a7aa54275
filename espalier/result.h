// The result of an engine's request: a Result, or StreamEvents that end in one.
#pragma once

#include "request/request.h"
#include "request/stream_event.h"
