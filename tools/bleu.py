"""BLEU against as many references as a sentence happens to have."""

import sacrebleu


def bleu(texts: list[str], references: list[list[str]]) -> float:
    """Corpus BLEU; `references[i]` are those of `texts[i]`, at least one."""
    most = max(map(len, references))
    padded = [row + [None] * (most - len(row)) for row in references]
    return sacrebleu.corpus_bleu(texts, [list(column) for column in zip(*padded)]).score
