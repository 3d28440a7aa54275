// What an engine answers: a Result, or the StreamEvents that lead to one.
#pragma once

#include "request/request.h"
#include "request/stream_event.h"
