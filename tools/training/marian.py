"""A Marian-architecture translator that is being trained, and its tokenizer."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from tools.embedded_model import ENGLISH, EOS, FRENCH, PAD
from tools.training.batches import Batch, Example, padded

# Of a source and of a translation; nothing trained on is a tenth as long.
MAX_POSITIONS = 512
LANGUAGES = {ENGLISH: ">>en<<", FRENCH: ">>fr<<"}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _prompt_templates() -> dict[str, Any]:
    """What espalier puts around a sentence; as MarianTokenizer.prompt."""
    names = {"en": "English", "fr": "French"}
    templates = [
        {
            "name": f"{source}-{target}",
            "from": source,
            "to": target,
            "description": f"{names[source]} to {names[target]}",
            "prompt": [f">>{target}<<", {"text": True}, "</s>"],
        }
        for source, target in (("en", "fr"), ("fr", "en"))
    ]
    return {"default": "en-fr", "templates": templates}


class MarianTokenizer:
    """One SentencePiece vocabulary for both languages, and after its pieces a
    token for each language to translate into. PAD and EOS have their usual ids."""

    def __init__(self, pieces_path: Path):
        self._path = pieces_path
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(pieces_path))
        size = self.pieces.vocab_size()
        self.vocabulary = {self.pieces.id_to_piece(i): i for i in range(size)}
        for language in LANGUAGES.values():
            self.vocabulary[language] = len(self.vocabulary)

    def prompt(self, text: str, source: int = ENGLISH) -> list[int]:
        """`>>fr<< text </s>`: translate into the language that is not `source`."""
        target = FRENCH if source == ENGLISH else ENGLISH
        language = self.vocabulary[LANGUAGES[target]]
        return [language, *self.pieces.encode(text), EOS]

    def decode(self, tokens: list[int]) -> str:
        size = self.pieces.vocab_size()
        return self.pieces.decode([token for token in tokens if token < size])

    def save(self, model_dir: Path) -> None:
        for name in ("source.spm", "target.spm"):
            shutil.copy(self._path, model_dir / name)
        _write_json(model_dir / "vocab.json", self.vocabulary)
        _write_json(
            model_dir / "tokenizer_config.json",
            {
                "tokenizer_class": "MarianTokenizer",
                "source_lang": "en",
                "target_lang": "fr",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
                "separate_vocabs": False,
                "model_max_length": MAX_POSITIONS,
            },
        )
        _write_json(model_dir / "prompt_template.json", _prompt_templates())


@dataclass(frozen=True)
class MarianShape:
    d_model: int
    encoder_layers: int
    decoder_layers: int
    num_heads: int
    ffn_dim: int
    dropout: float


def _config(shape: MarianShape, vocab_size: int) -> MarianConfig:
    return MarianConfig(
        vocab_size=vocab_size,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.num_heads,
        decoder_attention_heads=shape.num_heads,
        encoder_ffn_dim=shape.ffn_dim,
        decoder_ffn_dim=shape.ffn_dim,
        max_position_embeddings=MAX_POSITIONS,
        activation_function="swish",
        scale_embedding=True,
        dropout=shape.dropout,
        attention_dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )


def _generation_config() -> GenerationConfig:
    """As published translators have it: beams, and no padding in a translation."""
    return GenerationConfig(
        num_beams=4,
        max_length=MAX_POSITIONS,
        bad_words_ids=[[PAD]],
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
    )


class MarianTranslator:
    """As Translator, with an encoder."""

    def __init__(self, shape: MarianShape, vocab_size: int, device: str):
        self.device = torch.device(device)
        self.model = MarianMTModel(_config(shape, vocab_size)).to(self.device)
        self.model.generation_config = _generation_config()

    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @staticmethod
    def collate(batch: list[Example]) -> Batch:
        """The encoder reads prompts; PAD begins what the decoder reads."""
        source = padded([example.prompt for example in batch])
        labels = padded([example.answer for example in batch])
        read = labels.roll(1, dims=1)
        read[:, 0] = PAD
        inputs = {
            "input_ids": source,
            "attention_mask": (source != PAD).long(),
            "decoder_input_ids": read,
        }
        return Batch(inputs, labels, (labels != PAD).float())

    def save(self, model_dir: Path) -> None:
        """Ends training: the model becomes what its bf16 weights say it is."""
        self.model.to(torch.bfloat16).save_pretrained(model_dir)
        self.model.float().eval()
