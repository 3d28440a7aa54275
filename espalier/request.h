// The request of an engine: a prompt's tokens, and GenerationParams.
#pragma once

#include "request/generation_params.h"
#include "request/request.h"
