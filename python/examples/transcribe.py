"""Transcribes files of audio, and prints each segment as it comes, and the words
that the model is least sure of: python transcribe.py whisper-base talk.mp3"""

import sys

import espalier


def show(segment: espalier.TranscriptSegment) -> None:
    print(f"[{segment.start:.2f} --> {segment.end:.2f}] {segment.text}", flush=True)


def main(directory: str, files: list[str]) -> None:
    with espalier.Transcriber(directory) as transcriber:
        for file in files:
            transcript = transcriber.transcribe(
                file, word_timestamps=True, on_segment=show
            )
            words = [
                word for segment in transcript.segments for word in segment.words or []
            ]
            words.sort(key=lambda word: word.probability)
            print(f"{file}: {transcript.duration} s of {transcript.language}")
            for word in words[:3]:
                print(f"{word.probability:.2f} at {word.start} s: {word.word}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
