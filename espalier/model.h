// Models: the interface that a caller's own model implements, and the
// Llama-family model on the CPU.
#pragma once

#include "exec_request/model.h"
#include "model/transformer_model.h"
