"""espalier.integrations.trl: GRPO trains with samples of the engine, whose
log-probabilities are those of the model that is trained, at every step. Skipped
without TRL."""

import os

import pytest

import espalier

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
torch = pytest.importorskip("torch")
trl = pytest.importorskip("trl")

from espalier.integrations.trl import rollout_func  # noqa: E402

NUM_STEPS = 20


@pytest.fixture
def directory(tmp_path):
    """A small random Llama with a tokenizer of bytes."""
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["one two three four five"] * 10, trainer)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=special[0],
        bos_token=special[1],
        eos_token=special[2],
    ).save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.7}], ids=["temperature 1", "temperature 0.7"]
)
def test_log_probabilities_are_those_of_the_trained_model(directory, settings):
    import datasets
    import transformers

    with espalier.LLM(directory, num_threads=1) as llm:
        sample = rollout_func(llm)
        differences, rewards = [], []

        def rollout(prompts, trainer):
            result = sample(prompts, trainer)
            assert len(result["prompt_ids"]) == len(prompts)
            worst = 0.0
            for prompt, tokens, logprobs in zip(
                *(result[k] for k in ("prompt_ids", "completion_ids", "logprobs")),
                strict=True,
            ):
                with torch.no_grad():
                    logits = trainer.model(torch.tensor([prompt + tokens])).logits[0]
                rows = torch.log_softmax(logits.double() / trainer.temperature, -1)
                own = rows[len(prompt) - 1 : -1].gather(1, torch.tensor([tokens]).T)
                given = torch.tensor(logprobs, dtype=torch.double)
                worst = max(worst, (own[:, 0] - given).abs().max().item())
            differences.append(worst)
            return result

        def reward(completions, **_):
            values = [
                sum(letter in "aeiou w" for letter in text) / max(1, len(text))
                for text in completions
            ]
            rewards.append(sum(values) / len(values))
            return values

        trainer = trl.GRPOTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(directory),
            processing_class=transformers.AutoTokenizer.from_pretrained(directory),
            reward_funcs=reward,
            rollout_func=rollout,
            train_dataset=datasets.Dataset.from_dict(
                {"prompt": [f"one two {i}" for i in range(50)]}
            ),
            args=trl.GRPOConfig(
                output_dir=str(directory / "out"),
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=16,
                max_steps=NUM_STEPS,
                learning_rate=1e-2,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
                bf16=False,
                **settings,
            ),
        )
        trainer.train()
        assert llm.weights_version == len(differences) == NUM_STEPS
        assert max(differences) < 1e-5
        assert sum(rewards[-5:]) > 1.5 * sum(rewards[:5])  # it has learned


def test_what_the_trainer_sets_is_refused(llm):
    with pytest.raises(ValueError, match="num_return_sequences") as caught:
        rollout_func(llm, num_return_sequences=3)
    assert caught.value.field == "num_return_sequences"
