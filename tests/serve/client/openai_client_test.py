"""The official Python client of OpenAI's API against `espalier serve`.

    openai_client_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)
"""

import asyncio
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.replica import Replica, free_port, wait_until

if __name__ == "__main__":
    environment.restart_with_packages()

import openai

QUESTION = "Where is the station?"
ANSWER = "Où se trouve la gare ?"
TEMPLATE = "{{ bos_token }}<en> {{ messages[-1].content }}<fr>"
KEY = "key-of-a-test"
# Runs until somebody ends it, for about a second on an idle machine.
ENDLESS = {"prompt": "She is waiting for the bus.", "max_tokens": 900,
           "extra_body": {"num_beams": 16, "ignore_eos": True}}


def chat_model(folder: str) -> Path:
    """The translator as a model of conversations: the last message counts."""
    model = Path(folder) / "en-fr"
    model.mkdir()
    for file in environment.MODEL.iterdir():
        (model / file.name).symlink_to(file)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


class ClientTest(unittest.TestCase):
    FLAGS: tuple[str, ...] = ()

    @classmethod
    def setUpClass(cls) -> None:
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.server = cls.enterClassContext(
            Replica(*cls.FLAGS, model=chat_model(folder)))
        cls.client = openai.OpenAI(base_url=f"{cls.server.url}/v1",
                                   api_key="none", max_retries=0)

    def complete(self, **fields):
        fields = {"model": "en-fr", "prompt": QUESTION, "max_tokens": 40,
                  "temperature": 0} | fields
        return self.client.completions.create(**fields)

    def chat(self, **fields):
        fields = {"model": "en-fr", "temperature": 0, "messages": [
            {"role": "user", "content": QUESTION}]} | fields
        return self.client.chat.completions.create(**fields)

    def held_pages(self) -> float:
        return self.server.metrics()['espalier:pages{state="held"}']


class CompletionsTest(ClientTest):
    def test_an_answer_has_what_the_api_says(self) -> None:
        answer = self.complete()
        self.assertRegex(answer.id, "^cmpl-")
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.model, "en-fr")
        self.assertLess(abs(answer.created - time.time()), 60)
        (choice,) = answer.choices
        self.assertEqual(choice.text, ANSWER)
        self.assertEqual(choice.finish_reason, "stop")
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertGreater(usage.completion_tokens, 0)
        self.assertEqual(usage.total_tokens,
                         usage.prompt_tokens + usage.completion_tokens)
        self.assertIn(answer._request_id, answer.id)

    def test_several_prompts_have_their_choices_in_order(self) -> None:
        answer = self.complete(prompt=[QUESTION, "It rains."], n=2,
                               temperature=0.5, seed=1)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2, 3])

    def test_tokens_are_a_prompt_and_an_answer(self) -> None:
        told = self.complete(extra_body={"return_token_ids": True})
        ids = told.choices[0].prompt_token_ids
        again = self.complete(prompt=ids, extra_body={"return_token_ids": True})
        self.assertEqual(again.choices[0].token_ids, told.choices[0].token_ids)
        self.assertEqual(again.choices[0].text, ANSWER)

    def test_samples(self) -> None:
        fields = {"n": 4, "temperature": 1.2, "seed": 5}
        texts = [choice.text for choice in self.complete(**fields).choices]
        self.assertEqual(len(texts), 4)
        self.assertGreater(len(set(texts)), 1)
        again = [choice.text for choice in self.complete(**fields).choices]
        self.assertEqual(texts, again)

    def test_stop(self) -> None:
        choice = self.complete(stop=[" la"]).choices[0]
        self.assertEqual(choice.text, "Où se trouve")
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(self.complete(max_tokens=2).choices[0].finish_reason,
                         "length")

    def test_echo(self) -> None:
        text = self.complete(echo=True).choices[0].text
        self.assertTrue(text.startswith(QUESTION), text)
        self.assertTrue(text.endswith(ANSWER), text)

    def test_logprobs(self) -> None:
        logprobs = self.complete(logprobs=3).choices[0].logprobs
        self.assertGreater(len(logprobs.tokens), 2)
        self.assertEqual(len(logprobs.tokens), len(logprobs.token_logprobs))
        self.assertEqual(len(logprobs.tokens), len(logprobs.top_logprobs))
        for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs,
                                     logprobs.top_logprobs):
            self.assertLessEqual(value, 0)
            self.assertGreaterEqual(len(top), 3)
            self.assertAlmostEqual(top[token], value, places=5)

    def test_beams_by_vllms_names_and_by_ours(self) -> None:
        vllm = self.complete(n=3, extra_body={"use_beam_search": True})
        ours = self.complete(n=3, extra_body={"num_beams": 3})
        self.assertEqual([c.text for c in vllm.choices],
                         [c.text for c in ours.choices])
        scores = [choice.score for choice in ours.choices]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(ours.choices[0].text, ANSWER)
        for choice in ours.choices:
            self.assertLess(choice.cum_log_prob, 0)

    def test_a_stream_comes_to_the_answer(self) -> None:
        for fields in ({}, {"n": 3, "temperature": 0.9, "seed": 3},
                       {"n": 2, "extra_body": {"num_beams": 4}}):
            with self.subTest(fields):
                texts: dict[int, str] = {}
                reasons: dict[int, str] = {}
                usage = None
                for chunk in self.complete(
                        stream=True, stream_options={"include_usage": True},
                        **fields):
                    usage = chunk.usage
                    if usage:
                        self.assertEqual(chunk.choices, [])
                    for choice in chunk.choices:
                        self.assertNotIn(choice.index, reasons)
                        texts[choice.index] = (texts.get(choice.index, "")
                                               + choice.text)
                        if choice.finish_reason:
                            reasons[choice.index] = choice.finish_reason
                whole = self.complete(**fields)
                # Samples are best first in a whole answer.
                self.assertEqual(sorted(texts.values()),
                                 sorted(c.text for c in whole.choices))
                self.assertEqual(set(reasons), set(texts))
                self.assertEqual(usage.completion_tokens,
                                 whole.usage.completion_tokens)

    def test_live_beams(self) -> None:
        steps = [chunk.espalier["beams"]
                 for chunk in self.complete(stream=True, extra_body={
                     "num_beams": 4, "stream_beams": True})
                 if not chunk.choices and hasattr(chunk, "espalier")]
        self.assertGreater(len(steps), 2)
        # Whoever reads slowly gets fewer steps; before the last all beams live.
        for beams in steps[:-1]:
            living = [b for b in beams if b["finish_reason"] is None]
            self.assertEqual(len(living), 4)

    def test_unknown_fields_are_told(self) -> None:
        answer = self.complete(extra_body={"num_beamz": 4})
        self.assertIn("num_beamz", str(answer.model_extra["warnings"]))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"num_beamz": 4, "strict": True})
        self.assertIn("num_beamz", caught.exception.message)

    def test_raw_responses(self) -> None:
        raw = self.client.completions.with_raw_response.create(
            model="en-fr", prompt=QUESTION, max_tokens=1,
            extra_headers={"X-Request-ID": "mine-7"})
        self.assertEqual(raw.headers["x-request-id"], "mine-7")
        self.assertEqual(raw.parse()._request_id, "mine-7")


class ChatTest(ClientTest):
    def test_an_answer_has_what_the_api_says(self) -> None:
        answer = self.chat()
        self.assertRegex(answer.id, "^chatcmpl-")
        self.assertEqual(answer.object, "chat.completion")
        (choice,) = answer.choices
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(choice.message.content, ANSWER)
        self.assertEqual(choice.finish_reason, "stop")

    def test_the_last_message_counts(self) -> None:
        answer = self.chat(messages=[
            {"role": "system", "content": "Translate."},
            {"role": "user", "content": [{"type": "text", "text": "It rains."}]},
        ])
        self.assertEqual(answer.choices[0].message.content, "Il pleut.")

    def test_limits_of_tokens(self) -> None:
        for name in ("max_tokens", "max_completion_tokens"):
            answer = self.chat(**{name: 2})
            self.assertEqual(answer.choices[0].finish_reason, "length")
            self.assertEqual(answer.usage.completion_tokens, 2)

    def test_samples_and_beams(self) -> None:
        answer = self.chat(n=3, temperature=1, seed=2)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        answer = self.chat(n=2, extra_body={"num_beams": 4})
        self.assertEqual(answer.choices[0].message.content, ANSWER)
        self.assertGreater(answer.choices[0].score, answer.choices[1].score)

    def test_logprobs(self) -> None:
        content = self.chat(logprobs=True, top_logprobs=2).choices[0]
        self.assertGreater(len(content.logprobs.content), 2)
        for place in content.logprobs.content:
            self.assertLessEqual(place.logprob, 0)
            self.assertEqual(len(place.top_logprobs), 2)
            self.assertEqual(place.top_logprobs[0].token, place.token)
            self.assertEqual(place.top_logprobs[0].bytes, place.bytes)

    def test_a_stream_comes_to_the_answer(self) -> None:
        chunks = list(self.chat(stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        self.assertEqual(text, ANSWER)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")
        self.assertEqual({chunk.object for chunk in chunks},
                         {"chat.completion.chunk"})

    def test_the_clients_own_accumulator(self) -> None:
        with self.client.chat.completions.stream(
                model="en-fr", temperature=0, messages=[
                    {"role": "user", "content": QUESTION}]) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, ANSWER)


class ModelsTest(ClientTest):
    def test_models(self) -> None:
        (model,) = self.client.models.list().data
        self.assertEqual(model.id, "en-fr")
        self.assertEqual(model.object, "model")
        self.assertEqual(self.client.models.retrieve("en-fr").id, "en-fr")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")


class ErrorsTest(ClientTest):
    FLAGS = ("--max-body-bytes", "20000")

    def refused(self, kind: type[openai.APIStatusError], status: int,
                call) -> openai.APIStatusError:
        with self.assertRaises(kind) as caught:
            call()
        error = caught.exception
        self.assertEqual(error.status_code, status)
        self.assertEqual(set(error.body), {"message", "type", "param", "code"})
        return error

    def test_a_wrong_value_is_named(self) -> None:
        for fields, param in (({"temperature": -1}, "temperature"),
                              ({"n": 0}, "n"), ({"top_p": 2}, "top_p"),
                              ({"max_tokens": "many"}, "max_tokens"),
                              ({"extra_body": {"num_beams": 0}}, "num_beams"),
                              ({"logprobs": -1}, "logprobs")):
            with self.subTest(fields):
                error = self.refused(openai.BadRequestError, 400,
                                     lambda: self.complete(**fields))
                self.assertEqual(error.type, "invalid_request_error")
                self.assertEqual(error.param, param)
                self.assertIn(param, error.message)

    def test_an_unknown_model(self) -> None:
        error = self.refused(openai.NotFoundError, 404,
                             lambda: self.complete(model="gpt-4"))
        self.assertEqual(error.code, "model_not_found")
        self.assertEqual(error.param, "model")

    def test_an_unknown_path(self) -> None:
        self.refused(openai.NotFoundError, 404,
                     lambda: self.client.embeddings.create(model="en-fr",
                                                           input="It rains."))

    def test_a_page_of_somebody_else(self) -> None:
        self.refused(openai.PermissionDeniedError, 403,
                     lambda: self.complete(
                         extra_headers={"Origin": "http://example.org"}))

    def test_a_body_that_is_too_large(self) -> None:
        self.refused(openai.APIStatusError, 413,
                     lambda: self.complete(prompt="It rains. " * 10000))

    def test_a_body_of_another_type(self) -> None:
        self.refused(openai.APIStatusError, 415,
                     lambda: self.complete(
                         extra_headers={"Content-Type": "text/plain"}))

    def test_a_prompt_that_is_too_long(self) -> None:
        self.refused(openai.BadRequestError, 400,
                     lambda: self.complete(prompt="It rains. " * 1000))

    def test_tools(self) -> None:
        tools = [{"type": "function", "function": {"name": "f"}}]
        for choice in ("auto", "none"):
            found = self.chat(tools=tools, tool_choice=choice).choices[0]
            self.assertEqual(found.message.content, ANSWER)
            self.assertIsNone(found.message.tool_calls)
        error = self.refused(openai.BadRequestError, 400, lambda: self.chat(
            tools=tools, tool_choice="required"))
        self.assertEqual(error.param, "tool_choice")

    def test_no_server(self) -> None:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{free_port()}/v1",
                               api_key="none", max_retries=0)
        with self.assertRaises(openai.APIConnectionError):
            client.models.list()

    def test_a_timeout_of_the_client_ends_its_request(self) -> None:
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.2).completions.create(
                model="en-fr", **ENDLESS)
        wait_until("its pages are free", lambda: self.held_pages() == 0, 5)


class KeyTest(unittest.TestCase):
    def test_a_key_is_asked_for(self) -> None:
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write(f"# of tests\n{KEY}\n")
            keys.flush()
            with Replica("--api-key-file", keys.name) as server:
                def client(key: str) -> openai.OpenAI:
                    return openai.OpenAI(base_url=f"{server.url}/v1",
                                         api_key=key, max_retries=0)

                self.assertEqual(client(KEY).models.list().data[0].id, "en-fr")
                for wrong in ("none", KEY + "x", KEY[:-1]):
                    with self.assertRaises(openai.AuthenticationError) as caught:
                        client(wrong).models.list()
                    self.assertEqual(caught.exception.code, "invalid_api_key")
                self.assertEqual(server.get("/health")[0], 200)
                self.assertEqual(server.get("/ready")[0], 401)


class RetriesTest(ClientTest):
    """One request runs, and none may wait."""

    FLAGS = ("--max-running", "1", "--max-waiting", "0")

    def test_a_full_queue_is_retried_when_the_server_says(self) -> None:
        stream = self.complete(stream=True, **ENDLESS)
        next(stream)
        with self.assertRaises(openai.RateLimitError) as caught:
            self.complete()
        after = caught.exception.response.headers["retry-after"]
        self.assertGreaterEqual(int(after), 1)
        threading.Timer(0.5, stream.close).start()
        begin = time.monotonic()
        patient = self.client.with_options(max_retries=8)
        answer = patient.completions.create(model="en-fr", prompt=QUESTION,
                                            max_tokens=40, temperature=0)
        self.assertEqual(answer.choices[0].text, ANSWER)
        self.assertGreaterEqual(time.monotonic() - begin, int(after) * 0.9)


class DrainTest(ClientTest):
    def test_a_server_that_drains_refuses_with_503(self) -> None:
        stream = self.complete(stream=True, **ENDLESS)
        next(stream)
        self.server.drain()
        with self.assertRaises(openai.InternalServerError) as caught:
            self.complete()
        self.assertEqual(caught.exception.status_code, 503)
        self.assertIn("retry-after", caught.exception.response.headers)
        # What runs is answered to the end.
        last = None
        for chunk in stream:
            last = chunk
        self.assertEqual(last.choices[0].finish_reason, "length")
        self.assertEqual(self.server.wait(), 0)


class CancellationTest(ClientTest):
    def test_a_closed_stream_ends_its_request(self) -> None:
        stream = self.complete(stream=True, **ENDLESS)
        next(stream)
        self.assertGreater(self.held_pages(), 0)
        stream.close()
        wait_until("its pages are free", lambda: self.held_pages() == 0, 5)
        metrics = self.server.metrics()
        ended = [value for name, value in metrics.items()
                 if name.startswith("espalier:requests_ended_total")
                 and "cancelled" in name]
        self.assertEqual(sum(ended), 1)
        # Nothing runs on.
        time.sleep(0.05)
        self.assertEqual(self.server.metrics()["espalier:steps_total"],
                         metrics["espalier:steps_total"])

    def test_many_tasks_of_which_half_are_cancelled(self) -> None:
        async def run() -> int:
            client = openai.AsyncOpenAI(base_url=f"{self.server.url}/v1",
                                        api_key="none", max_retries=0)

            async def ask(index: int) -> str:
                fields = ENDLESS if index % 2 else {
                    "prompt": QUESTION, "max_tokens": 40, "temperature": 0}
                text = ""
                async for chunk in await client.completions.create(
                        model="en-fr", stream=True, **fields):
                    text += "".join(c.text for c in chunk.choices)
                return text

            tasks = [asyncio.create_task(ask(index)) for index in range(20)]
            answers = await asyncio.gather(*tasks[::2])
            for task in tasks[1::2]:
                task.cancel()
            ends = await asyncio.gather(*tasks[1::2], return_exceptions=True)
            await client.close()
            self.assertEqual(set(answers), {ANSWER})
            return sum(isinstance(end, asyncio.CancelledError) for end in ends)

        self.assertGreater(asyncio.run(run()), 0)
        wait_until("all pages are free", lambda: self.held_pages() == 0, 5)
        self.assertEqual(self.server.num_running(), 0)


if __name__ == "__main__":
    environment.main()
