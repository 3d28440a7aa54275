// Text to tokens and back, and the prompts around a caller's text.
#pragma once

#include "text/prompt_template.h"
#include "text/tokenizer/tokenizer.h"
