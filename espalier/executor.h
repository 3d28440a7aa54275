// Executors: the interface by which an engine has its steps run, the executor
// of models on the host, and the threads that both share.
#pragma once

#include "base/thread_pool.h"
#include "exec_request/step_executor.h"
#include "executor/host/model_executor.h"
