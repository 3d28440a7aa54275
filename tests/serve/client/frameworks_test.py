"""Frameworks that use OpenAI's API, against `espalier serve`: chats, streams and
calls of tools by each.

    frameworks_test.py PROGRAM CACHE [unittest's arguments]
                                                         (live/environment.py)

The model is the translator with a chat template. A call of a tool is nothing that
it would write: the calls here have it as `allowed_sequences`, so that what is
tested is the way back.
"""

import asyncio
import json
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live import environment
from live.replica import Replica

if __name__ == "__main__":
    environment.restart_with_packages(Path(__file__).with_name("frameworks.txt"))

QUESTION = "Where is the station?"
ANSWER = "Où se trouve la gare ?"
# Of conversations of any length the end of the last message; calls of tools as
# Hermes's models have them.
TEMPLATE = """{%- if tools %}{% set mark = "<tool_call>" %}{% endif -%}
{{ bos_token }}<en> {{ (messages[-1].content or "Yes.")[-200:] }}<fr>"""
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}},
          "required": ["city"]}
TOOL = {"type": "function",
        "function": {"name": "weather", "description": "The weather.",
                     "parameters": SCHEMA}}


def weather(city: str) -> str:
    """Tells the weather of a city.

    Args:
        city: its name
    """
    return f"rain in {city}"


class FrameworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        model = Path(folder) / "en-fr"
        model.mkdir()
        for file in environment.MODEL.iterdir():
            (model / file.name).symlink_to(file)
        (model / "chat_template.jinja").write_text(TEMPLATE)
        # smolagents sends stops, which allowed_sequences exclude, but to models
        # of this name.
        cls.server = cls.enterClassContext(
            Replica("--served-model-name", "en-fr", "--served-model-name", "o3",
                    model=model))
        cls.url = f"{cls.server.url}/v1"

    def forced(self, name: str = "weather", arguments: object = None) -> dict:
        """Fields of a call that is answered with this call of a tool."""
        arguments = {"city": "Bern"} if arguments is None else arguments
        text = ("<tool_call>" + json.dumps({"name": name, "arguments": arguments})
                + "</tool_call>")
        request = urllib.request.Request(
            f"{self.server.url}/tokenize",
            json.dumps({"prompt": text, "add_special_tokens": False}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return {"allowed_sequences": [json.load(answer)["tokens"]]}


class OpenaiTest(FrameworkTest):
    def setUp(self) -> None:
        import openai
        self.client = openai.OpenAI(base_url=self.url, api_key="none",
                                    max_retries=0)
        self.fields = {"model": "en-fr", "temperature": 0, "messages": [
            {"role": "user", "content": QUESTION}]}

    def test_chats(self) -> None:
        answer = self.client.chat.completions.create(**self.fields)
        self.assertEqual(answer.choices[0].message.content, ANSWER)

    def test_tools(self) -> None:
        call = self.client.chat.completions.create(
            tools=[TOOL], extra_body=self.forced(), **self.fields)
        self.assertEqual(call.choices[0].finish_reason, "tool_calls")
        self.assertIsNone(call.choices[0].message.content)
        found, = call.choices[0].message.tool_calls
        self.assertEqual(found.function.name, "weather")
        self.assertEqual(json.loads(found.function.arguments), {"city": "Bern"})
        messages = [*self.fields["messages"],
                    call.choices[0].message.model_dump(exclude_none=True),
                    {"role": "tool", "tool_call_id": found.id,
                     "content": QUESTION}]
        answer = self.client.chat.completions.create(
            **self.fields | {"messages": messages}, tools=[TOOL])
        self.assertEqual(answer.choices[0].message.content, ANSWER)

    def test_tools_that_are_not_wanted(self) -> None:
        answer = self.client.chat.completions.create(
            tools=[TOOL], tool_choice="none", **self.fields)
        self.assertEqual(answer.choices[0].message.content, ANSWER)

    def test_streamed_tools(self) -> None:
        with self.client.chat.completions.stream(
                tools=[TOOL | {"function": TOOL["function"] | {"strict": True}}],
                extra_body=self.forced(), **self.fields) as stream:
            final = stream.get_final_completion()
        found, = final.choices[0].message.tool_calls
        self.assertEqual(json.loads(found.function.arguments), {"city": "Bern"})

    def test_a_call_that_must_come(self) -> None:
        named = {"type": "function", "function": {"name": "weather"}}
        for choice in ("required", named):
            answer = self.client.chat.completions.create(
                tools=[TOOL], tool_choice=choice, max_tokens=60,
                parallel_tool_calls=False, **self.fields)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            call, = answer.choices[0].message.tool_calls
            self.assertEqual(call.function.name, "weather")
            self.assertIn("city", json.loads(call.function.arguments))


class LangchainTest(FrameworkTest):
    def model(self, **fields):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(model="en-fr", base_url=self.url, api_key="none",
                          temperature=0, max_retries=0, **fields)

    def test_chats(self) -> None:
        self.assertEqual(self.model().invoke(QUESTION).content, ANSWER)
        streamed = "".join(part.content for part in self.model().stream(QUESTION))
        self.assertEqual(streamed, ANSWER)

    def test_tools(self) -> None:
        model = self.model(extra_body=self.forced()).bind_tools([weather])
        call, = model.invoke(QUESTION).tool_calls
        self.assertEqual((call["name"], call["args"]),
                         ("weather", {"city": "Bern"}))

    def test_streamed_tools(self) -> None:
        model = self.model(extra_body=self.forced()).bind_tools([weather])
        whole = None
        for part in model.stream(QUESTION):
            whole = part if whole is None else whole + part
        call, = whole.tool_calls
        self.assertEqual((call["name"], call["args"]),
                         ("weather", {"city": "Bern"}))


class LitellmTest(FrameworkTest):
    def complete(self, **fields):
        import litellm
        return litellm.completion(
            model="hosted_vllm/en-fr", api_base=self.url, api_key="none",
            temperature=0, max_retries=0,
            messages=[{"role": "user", "content": QUESTION}], **fields)

    def test_chats(self) -> None:
        answer = self.complete()
        self.assertEqual(answer.choices[0].message.content, ANSWER)

    def test_tools(self) -> None:
        answer = self.complete(tools=[TOOL], extra_body=self.forced())
        call, = answer.choices[0].message.tool_calls
        self.assertEqual(json.loads(call.function.arguments), {"city": "Bern"})
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")

    def test_streamed_tools(self) -> None:
        import litellm
        parts = list(self.complete(tools=[TOOL], extra_body=self.forced(),
                                   stream=True))
        answer = litellm.stream_chunk_builder(parts)
        call, = answer.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "weather")
        self.assertEqual(json.loads(call.function.arguments), {"city": "Bern"})


class InstructorTest(FrameworkTest):
    def test_tools(self) -> None:
        import instructor
        import openai
        import pydantic

        class Weather(pydantic.BaseModel):
            """The weather."""
            city: str
            days: int

        client = instructor.from_openai(
            openai.OpenAI(base_url=self.url, api_key="none", max_retries=0),
            mode=instructor.Mode.TOOLS)
        found = client.chat.completions.create(
            model="en-fr", temperature=0, response_model=Weather, max_tokens=60,
            max_retries=0, messages=[{"role": "user", "content": QUESTION}])
        self.assertIsInstance(found, Weather)

    def test_parallel_tools(self) -> None:
        from typing import Iterable
        import instructor
        import openai
        import pydantic

        class Weather(pydantic.BaseModel):
            """The weather."""
            city: str

        client = instructor.from_openai(
            openai.OpenAI(base_url=self.url, api_key="none", max_retries=0),
            mode=instructor.Mode.PARALLEL_TOOLS)
        found = client.chat.completions.create(
            model="en-fr", temperature=0, response_model=Iterable[Weather],
            max_retries=0, messages=[{"role": "user", "content": QUESTION}],
            extra_body=self.forced("Weather"))
        self.assertEqual([each.city for each in found], ["Bern"])


class DspyTest(FrameworkTest):
    def test_chats_and_tools(self) -> None:
        import dspy
        model = dspy.LM("openai/en-fr", api_base=self.url, api_key="none",
                        temperature=0, cache=False, num_retries=0)
        self.assertEqual(
            model(messages=[{"role": "user", "content": QUESTION}]), [ANSWER])
        found = model(messages=[{"role": "user", "content": QUESTION}],
                      tools=[TOOL], extra_body=self.forced())
        call, = found[0]["tool_calls"]
        self.assertEqual(call.function.name, "weather")


class LlamaIndexTest(FrameworkTest):
    def model(self, **fields):
        from llama_index.llms.openai_like import OpenAILike
        return OpenAILike(model="en-fr", api_base=self.url, api_key="none",
                          is_chat_model=True, is_function_calling_model=True,
                          temperature=0, max_retries=0, **fields)

    def test_chats(self) -> None:
        from llama_index.core.llms import ChatMessage
        messages = [ChatMessage(role="user", content=QUESTION)]
        self.assertEqual(self.model().chat(messages).message.content, ANSWER)
        *_, last = self.model().stream_chat(messages)
        self.assertEqual(last.message.content, ANSWER)

    def test_tools(self) -> None:
        from llama_index.core.tools import FunctionTool
        model = self.model(additional_kwargs={"extra_body": self.forced()})
        answer = model.chat_with_tools([FunctionTool.from_defaults(weather)],
                                       user_msg=QUESTION)
        call, = model.get_tool_calls_from_response(answer)
        self.assertEqual((call.tool_name, call.tool_kwargs),
                         ("weather", {"city": "Bern"}))


class PydanticAiTest(FrameworkTest):
    def model(self):
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        return OpenAIChatModel(
            "en-fr", provider=OpenAIProvider(base_url=self.url, api_key="none"))

    def test_chats(self) -> None:
        from pydantic_ai import Agent
        agent = Agent(self.model(), model_settings={"temperature": 0})
        self.assertEqual(agent.run_sync(QUESTION).output, ANSWER)

    def test_typed_output(self) -> None:
        import pydantic
        from pydantic_ai import Agent

        class Weather(pydantic.BaseModel):
            city: str

        agent = Agent(self.model(), output_type=Weather,
                      model_settings={"temperature": 0, "max_tokens": 60})
        self.assertIsInstance(agent.run_sync(QUESTION).output, Weather)


class OpenaiAgentsTest(FrameworkTest):
    def test_tools(self) -> None:
        import agents
        import openai
        agents.set_tracing_disabled(True)

        async def run() -> tuple[str, str]:
            client = openai.AsyncOpenAI(base_url=self.url, api_key="none",
                                        max_retries=0)
            agent = agents.Agent(
                name="a", tools=[agents.function_tool(weather)],
                model=agents.OpenAIChatCompletionsModel("en-fr", client),
                tool_use_behavior="stop_on_first_tool",
                model_settings=agents.ModelSettings(extra_body=self.forced()))
            whole = await agents.Runner.run(agent, QUESTION)
            streamed = agents.Runner.run_streamed(agent, QUESTION)
            async for _ in streamed.stream_events():
                pass
            return whole.final_output, streamed.final_output

        self.assertEqual(asyncio.run(run()), ("rain in Bern", "rain in Bern"))


class HaystackTest(FrameworkTest):
    def test_chats_and_tools(self) -> None:
        from haystack.components.generators.chat import OpenAIChatGenerator
        from haystack.dataclasses import ChatMessage
        from haystack.tools import Tool
        from haystack.utils import Secret
        tool = Tool(name="weather", description="The weather.",
                    parameters=SCHEMA, function=weather)
        model = OpenAIChatGenerator(
            model="en-fr", api_base_url=self.url, max_retries=0,
            api_key=Secret.from_token("none"))
        question = [ChatMessage.from_user(QUESTION)]
        plain = model.run(question, generation_kwargs={"temperature": 0})
        self.assertEqual(plain["replies"][0].text, ANSWER)
        for stream in (None, lambda chunk: None):
            found = model.run(
                question, tools=[tool], streaming_callback=stream,
                generation_kwargs={"extra_body": self.forced()})
            call, = found["replies"][0].tool_calls
            self.assertEqual((call.tool_name, call.arguments),
                             ("weather", {"city": "Bern"}))


class SmolagentsTest(FrameworkTest):
    def model(self, **fields):
        from smolagents import OpenAIModel
        return OpenAIModel(model_id="o3", api_base=self.url, api_key="none",
                           **fields)

    def test_an_agent_calls_tools(self) -> None:
        from smolagents import ToolCallingAgent
        model = self.model(
            tool_choice="auto",
            extra_body=self.forced("final_answer", {"answer": "42"}))
        agent = ToolCallingAgent(tools=[], model=model, max_steps=2,
                                 verbosity_level=0)
        self.assertEqual(agent.run("What is it?"), "42")

    def test_an_agent_must_call_tools(self) -> None:
        from smolagents import ChatMessage, FinalAnswerTool
        from smolagents.models import MessageRole
        answer = self.model(max_tokens=60).generate(
            [ChatMessage(role=MessageRole.USER, content=QUESTION)],
            tools_to_call_from=[FinalAnswerTool()])
        self.assertEqual(answer.tool_calls[0].function.name, "final_answer")


if __name__ == "__main__":
    environment.main()
