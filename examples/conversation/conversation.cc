// A conversation: the model's chat template makes the prompt.
#include <iostream>
#include <string>
#include <vector>

#include "espalier/chat.h"
#include "espalier/generator.h"

using namespace espalier;

int Fail(const absl::Status& error) {
  std::cerr << error << '\n';
  return 1;
}

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "models/chat";
  absl::StatusOr<Generator> generator = Generator::Load(directory);
  if (!generator.ok()) return Fail(generator.status());
  const absl::StatusOr<const ChatPrompts*> chat = generator->chat_prompts();
  if (!chat.ok()) return Fail(chat.status());

  ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "Where is the station?"}}};
  const absl::StatusOr<std::vector<TokenId>> tokens =
      (*chat)->Make(inputs, generator->description().max_prompt_tokens());
  if (!tokens.ok()) return Fail(tokens.status());

  const absl::StatusOr<Generation> answer =
      generator->Generate(GenerationRequest{Prompt::OfChat(*tokens)});
  if (!answer.ok()) return Fail(answer.status());
  std::cout << answer->texts[0] << '\n';
}
