// The engine: coroutines submit requests (request.h) and await or stream their
// results (result.h); an executor (executor.h) runs its steps.
#pragma once

#include "batcher/engine.h"
