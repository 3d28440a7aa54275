// Events of a search: TraceSink, which SchedulerOptions takes, and TraceWriter,
// which writes a file for `espalier trace`.
#pragma once

#include "trace/trace.h"
#include "trace/trace_json.h"
