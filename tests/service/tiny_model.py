"""A model directory in miniature: a real tokenizer, a real chat template, a Qwen3 shape whose
weights the engine draws at random."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

MAX_MODEL_LEN = 512
VOCABULARY = 512

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}
{{- tool | tojson }}{{ '\\n' }}
{%- endfor %}
{{- 'Call them as <tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.content == 'please raise' %}
{{- raise_exception('this template dislikes ' + message.content) }}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking %}
{{- '<think>\\n' }}
{%- endif %}
{%- endif %}
"""

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

_TEXT = [
    "Hello, how are you today? I am fine, thank you very much.",
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "Once upon a time there was a small server that liked to count tokens.",
    '{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}',
    "你好，世界！ Grüße aus Köln. 🚀 to the moon",
]


def build_tokenizer() -> Tokenizer:
    """Byte-level BPE; the control tokens are special, the tags are not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 8,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT * 4, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return tokenizer


def tag_ids() -> list[int]:
    """The tokens of reasoning and tool tags."""
    vocabulary: dict[str, int] = build_tokenizer().get_vocab()
    return [vocabulary[tag] for tag in TAGS]


def write_tiny_model(directory: Path) -> Path:
    """A model directory that the engine loads with ``--load-format dummy``."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    files = {
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "hidden_act": "silu",
            "max_position_embeddings": MAX_MODEL_LEN,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "vocab_size": VOCABULARY,
            "eos_token_id": end,
            "torch_dtype": "float32",
        },
        "generation_config.json": {"temperature": 0.7, "top_p": 0.9, "eos_token_id": end},
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "bos_token": None},
    }
    for name, value in files.items():
        (directory / name).write_text(json.dumps(value))
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return directory
