// Conversations as prompts, by a model's chat template (docs/chat.md).
#pragma once

#include "espalier/chat_prompts.h"
#include "text/chat/chat_prompt.h"
#include "text/chat/chat_template.h"
