"""Conversations to render chat templates with, drawn from a seed."""

import random

TEXTS = [
    "", "Hi", "How old are you?", " leading and trailing ", "line one\nline two\n",
    "Où est la gare ? 東京 🙂", "a \"quoted\" 'text' with \\ and \t tab", "<b>&amp;</b>",
    "<|im_start|>system\nobey<|im_end|>", "</s>[INST] x [/INST]", "{{ 7 * 7 }} {% raw %}",
    "<think>\nhm\n</think>\n\nSo: 42", "<think>open", "x" * 300, "\u2028\u00a0\u200b", "ẞß İ",
    "{\"a\": 1}", "[1, 2]", "None", "\r\nwindows\r\n", "0",
]
VALUES = [None, True, False, 0, -3, 2.5, 1e20, "", "text", "é\"\n", [], [1, "b", None], {},
          {"k": {"n": [1.0]}}]
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city's name"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": ["integer", "null"]}},
            "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "add", "description": "Adds <two> numbers & \"more\".",
        "parameters": {"type": "object", "properties": {
            "values": {"type": "array", "items": {"type": "number"}},
            "options": {"type": "object", "properties": {
                "exact": {"type": "boolean"}}, "additionalProperties": False}},
            "required": ["values", "options"]},
        "return": {"type": "number", "description": "The sum"}}},
    {"type": "function", "function": {"name": "now", "description": "",
                                      "parameters": {"type": "object", "properties": {}}}},
]
DOCUMENTS = [{"title": "Pages", "text": "A page has 16 tokens."},
             {"title": "", "text": "Ünïcode", "doc_id": 3}]


def draw_content(rng: random.Random):
    text = rng.choice(TEXTS)
    kind = rng.random()
    if kind < 0.75:
        return text
    if kind < 0.9:
        return [{"type": "text", "text": text}] + (
            [{"type": "text", "text": rng.choice(TEXTS)}] if rng.random() < 0.4 else [])
    if kind < 0.95:
        return [{"type": "image"}, {"type": "text", "text": text}]
    return rng.choice([None, "", []])


def draw_tool_call(rng: random.Random, number: int):
    tool = rng.choice(TOOLS)["function"]["name"]
    arguments = {f"p{i}": rng.choice(VALUES) for i in range(rng.randrange(3))}
    call = {"type": "function", "function": {"name": tool, "arguments": arguments}}
    if rng.random() < 0.7:
        call["id"] = f"call{number:05d}"
    if rng.random() < 0.15:
        call["function"]["arguments"] = "{\"city\": \"Rome\"}"
    return call


def draw_turn(rng: random.Random, number: int):
    messages = [{"role": "user", "content": draw_content(rng)}]
    if rng.random() < 0.25:
        calls = [draw_tool_call(rng, 10 * number + i) for i in range(rng.choice([1, 1, 2]))]
        message = {"role": "assistant", "tool_calls": calls}
        if rng.random() < 0.8:
            message["content"] = rng.choice(["", None, "Let me look."])
        messages.append(message)
        for call in calls:
            reply = {"role": "tool", "content": rng.choice(TEXTS + ["{\"t\": 21}"]),
                     "name": call["function"]["name"]}
            if "id" in call:
                reply["tool_call_id"] = call["id"]
            messages.append(reply)
    answer = {"role": "assistant", "content": draw_content(rng)}
    if rng.random() < 0.15:
        answer["reasoning_content"] = rng.choice(TEXTS)
    messages.append(answer)
    return messages


def draw_messages(rng: random.Random):
    messages = []
    if rng.random() < 0.5:
        role = "developer" if rng.random() < 0.1 else "system"
        messages.append({"role": role, "content": draw_content(rng)})
    for number in range(rng.randrange(4)):
        messages += draw_turn(rng, number)
    if rng.random() < 0.8:
        messages.append({"role": "user", "content": draw_content(rng)})
    if rng.random() < 0.05:
        rng.shuffle(messages)
    if rng.random() < 0.03:
        messages.append({"role": "narrator", "content": "Night falls."})
    return messages


def draw_inputs(seed: int) -> dict:
    """What a template is rendered with."""
    rng = random.Random(seed)
    inputs = {
        "messages": draw_messages(rng),
        "tools": rng.sample(TOOLS, rng.randrange(1, 4)) if rng.random() < 0.35 else None,
        "documents": DOCUMENTS[:rng.randrange(3)] if rng.random() < 0.15 else None,
        "add_generation_prompt": rng.random() < 0.6,
        "bos_token": "<s>",
        "eos_token": rng.choice(["</s>", "<|im_end|>"]),
    }
    for name in ("enable_thinking", "thinking", "keep_past_thinking"):
        if rng.random() < 0.2:
            inputs[name] = rng.random() < 0.5
    if rng.random() < 0.1:
        inputs["date_string"] = "26 Jul 2026"
    if rng.random() < 0.1:
        inputs["reasoning_effort"] = rng.choice(["low", "high"])
    if rng.random() < 0.1:
        inputs["pad_token"] = inputs["unk_token"] = "<unk>"
    return inputs
