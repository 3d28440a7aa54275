// Models: the interface that a caller's own model implements, and the
// transformers that load from a directory, on the CPU.
#pragma once

#include "exec_request/model.h"
#include "model/transformer_model.h"
