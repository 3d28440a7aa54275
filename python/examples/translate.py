"""Translates sentences with beams, at once and one after the other as they
come: python translate.py models/en-fr"""

import asyncio
import sys

import espalier

SENTENCES = ["How old are you?", "She is waiting for the train."]


async def stream(llm: espalier.LLM, sentence: str) -> str:
    """The translation, whose beginning is printed as soon as it is certain."""
    async with llm.astream(sentence, num_beams=4) as pieces:
        async for piece in pieces:
            print(piece.text, end="", flush=True)
        answer = await pieces.result()
    print()
    return answer.outputs[0].text


async def main(directory: str) -> None:
    with espalier.LLM(directory) as llm:
        for answer in llm.generate(SENTENCES, num_beams=4):
            best = answer.outputs[0]
            print(f"{best.score:.3f}  {answer.prompt} -> {best.text}")
        together = await asyncio.gather(
            *(llm.agenerate(sentence, num_beams=4) for sentence in SENTENCES)
        )
        streamed = await stream(llm, SENTENCES[0])
        assert together[0].outputs[0].text == streamed


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "models/en-fr"))
