// What a search does, event by event: TraceSink, which SchedulerOptions takes,
// and TraceWriter, one that writes a file for `espalier trace`.
#pragma once

#include "trace/trace.h"
#include "trace/trace_json.h"
