// A conversation: the model's chat template makes the prompt.
#include <iostream>
#include <memory>
#include <string>

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
  const std::shared_ptr<const Tokenizer> tokenizer = generator->tokenizer();
  if (tokenizer == nullptr) {
    return Fail(absl::FailedPreconditionError("the model has no tokenizer"));
  }

  const absl::StatusOr<std::unique_ptr<ChatTemplate>> chat =
      ChatTemplate::Load(directory, tokenizer.get());
  if (!chat.ok()) return Fail(chat.status());
  if (*chat == nullptr) {
    return Fail(absl::FailedPreconditionError("the model has no template"));
  }
  ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "Where is the station?"}}};
  const absl::StatusOr<jinja::Text> text = (*chat)->Render(inputs);
  if (!text.ok()) return Fail(text.status());
  // Who makes many prompts keeps a SpecialTokenNames, and passes it as well.
  const absl::StatusOr<std::vector<TokenId>> tokens =
      EncodeChat(*text, *tokenizer);
  if (!tokens.ok()) return Fail(tokens.status());

  const absl::StatusOr<Generation> answer =
      generator->Generate(GenerationRequest{*tokens});
  if (!answer.ok()) return Fail(answer.status());
  std::cout << answer->texts[0] << '\n';
}
