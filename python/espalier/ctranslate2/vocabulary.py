"""Tokens of a directory by their names, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ..errors import invalid
from ..llm import LLM
from .options import EndToken, Tokens


def json_of(directory: str, name: str) -> Any:
    """A file's JSON; None if there is no such file."""
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


class Vocabulary:
    """The tokens of a directory: those of its converter's file, or the pieces of
    its tokenizer."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._config: dict[str, Any] = json_of(llm.directory, "config.json") or {}
        self._tokens = self._of_file()
        self._ids = {token: i for i, token in enumerate(self._tokens or ())}
        self.ends: list[int] = llm.model["eos_token_ids"]
        self.bos: int | None
        self.unk: int | None
        if self._tokens is None:
            self.bos = llm.tokenizer.bos_token_id
            self.unk = llm.tokenizer.unk_token_id
        else:
            self.bos = self._ids.get(self._config.get("bos_token", "<s>"))
            self.unk = self._ids.get(self._config.get("unk_token", "<unk>"))

    def _of_file(self) -> list[str] | None:
        if not os.path.exists(os.path.join(self._llm.directory, "model.bin")):
            return None
        for name in ("shared_vocabulary", "vocabulary"):
            tokens = json_of(self._llm.directory, f"{name}.json")
            if tokens is not None:
                return list(tokens)
            path = os.path.join(self._llm.directory, f"{name}.txt")
            if os.path.exists(path):
                with open(path, encoding="utf-8", newline="\n") as file:
                    return [line.removesuffix("\n") for line in file]
        return None

    def names(self, ids: Sequence[int]) -> list[str]:
        if self._tokens is None:
            return self._llm.tokenizer.convert_ids_to_tokens(ids)
        return [self._tokens[i] for i in ids]

    def ids(self, tokens: Tokens, name: str, *, allow_unk: bool = True) -> list[int]:
        """The ids of the tokens of an argument, unknown ones as the token for
        these.

        Raises InvalidArgument where there is none, or without `allow_unk`.
        """
        if isinstance(tokens, str):
            raise TypeError(f"{name} must be lists of tokens, got {tokens!r}")
        unk = self.unk if allow_unk else None
        ids = []
        for token in tokens:
            known = (
                self._llm.tokenizer.convert_tokens_to_ids(token)
                if self._tokens is None
                else self._ids.get(token)
            )
            if known is None and unk is None:
                raise invalid(name, "has an unknown token", token)
            ids.append(unk if known is None else known)
        return ids  # type: ignore[return-value]

    def source_ids(self, tokens: Tokens, max_length: int) -> list[int]:
        """The input of an encoder, cut to `max_length` tokens unless that is 0,
        with those that the directory's configuration puts around it."""
        before = [self.bos] if self._config.get("add_source_bos") else []
        after = self.ends[:1] if self._config.get("add_source_eos") else []
        ids: list[Any] = self.ids(tokens, "source")
        if max_length > 0:
            ids = ids[: max(0, max_length - len(before) - len(after))]
        return before + ids + after

    def has_text(self, tokens: Tokens) -> bool:
        """False of a source of nothing but what stands around texts."""
        ids = self.ids(tokens, "source")
        around = {self.bos, *self.ends}
        if len(ids) >= 2 and ids[-2] in self.ends and ids[-1] not in self.ends:
            ids = ids[:-2]  # a language stands last
        return any(token not in around for token in ids)

    def end_ids(self, end_token: EndToken) -> list[int]:
        if end_token is None:
            return self.ends
        if isinstance(end_token, (str, int)):
            end_token = [end_token]
        return [
            (
                token
                if isinstance(token, int)
                else self.ids([token], "end_token", allow_unk=False)[0]
            )
            for token in end_token
        ]
