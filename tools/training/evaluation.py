"""BLEU of a trained translator on unseen sentences, English to French."""

from collections import defaultdict
from collections.abc import Iterator

import torch

from tools.bleu import bleu
from tools.embedded_model import Tokenizer, up_to_end
from tools.training.corpus import References
from tools.training.translator import Translator

BATCH_SIZE = 128
MAX_NEW_TOKENS = 40


def _same_length_batches(prompts: list[list[int]]) -> Iterator[list[int]]:
    """Indices of prompts of one length: batches that need no padding."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for idx, prompt in enumerate(prompts):
        by_length[len(prompt)].append(idx)
    for indices in by_length.values():
        for start in range(0, len(indices), BATCH_SIZE):
            yield indices[start : start + BATCH_SIZE]


@torch.no_grad()
def _generate(
    translator: Translator, prompts: list[list[int]], num_beams: int
) -> list[list[int]]:
    ids = torch.tensor(prompts, device=translator.device)
    out = translator.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=num_beams,
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
    )
    # A decoder with an encoder begins with decoder_start_token_id.
    has_encoder = translator.model.config.is_encoder_decoder
    num_before = 1 if has_encoder else ids.shape[1]
    return [up_to_end(t) for t in out[:, num_before:].tolist()]


def translate(
    translator: Translator, tokenizer: Tokenizer, sentences: list[str], num_beams: int
) -> list[str]:
    prompts = [tokenizer.prompt(sentence) for sentence in sentences]
    texts = [""] * len(prompts)
    for indices in _same_length_batches(prompts):
        answers = _generate(translator, [prompts[i] for i in indices], num_beams)
        for idx, answer in zip(indices, answers):
            texts[idx] = tokenizer.decode(answer)
    return texts


def report(
    translator: Translator,
    tokenizer: Tokenizer,
    test: References,
    beam_widths: tuple[int, ...],
) -> None:
    """Prints BLEU, and how many sentences come out as one of their references."""
    sentences, references = list(test), list(test.values())
    for num_beams in beam_widths:
        texts = translate(translator, tokenizer, sentences, num_beams)
        exact = sum(text in rows for text, rows in zip(texts, references))
        print(f"{num_beams} beams: BLEU {bleu(texts, references):.2f}, {exact} exact")
    for sentence, text in list(zip(sentences, texts))[:6]:
        print(f"  {sentence} -> {text}")
