"""The engine's settings, each declared once: type, bounds, default, meaning.

``engine.options`` turns such a struct into command-line flags; the service shows the same flags.
Does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import msgspec

from engine.options import setting

OnProgress = Callable[[str, int, int], None]
"""Called while a model loads, with the phase, how much of it is done, and of how much."""


class DeviceError(ValueError):
    """The requested device is not available; the message lists those that are."""


class StepSizes(NamedTuple):
    """What ``EngineConfig`` leaves to the device. ``max_num_seqs``: sequences in a step;
    ``max_num_batched_tokens``: tokens in a step; ``block_size``: tokens in a KV-cache block."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int


SIZES = StepSizes(64, 2048, 16)
# Of a GPU with at least this much memory whose model our kernels compute. Fewer sequences would
# leave its bandwidth unused; a tile of keys is then one block, which lies together in memory.
LARGE_SIZES = StepSizes(256, 8192, 64)
LARGE_DEVICE_BYTES = 64 << 30

# Groups, in the order in which the documentation lists them.
_MODEL = "Model"
_HARDWARE = "Hardware"
_BATCHING = "Batching"
_KV_CACHE = "KV cache"


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one engine process runs its model. Flags have the names that are common in the field."""

    model: Annotated[
        str,
        setting(
            _MODEL,
            "Hugging Face model directory (config.json inside), or for 'quire serve' a GGUF file, "
            "a model's name on the hub (OWNER/NAME, or OWNER/NAME:Q4_K_M for a GGUF file), or "
            "simulated:[PROFILE][,KEY=VALUE...] for a timed stand-in without weights. Default: "
            "pocket, the model that comes with Quire.",
        ),
    ]
    load_format: Annotated[
        Literal["auto", "safetensors", "dummy"],
        setting(_MODEL, "Where weights come from; dummy: random weights in the model's shape."),
    ] = "auto"
    model_impl: Annotated[
        Literal["auto", "native", "transformers"],
        setting(
            _MODEL,
            "Whose code computes a decoder. native: our own; transformers: its modelling code "
            "over our KV cache; auto: our own if it supports the model, else transformers'.",
        ),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        setting(
            _MODEL,
            "Weights and activations. auto: the checkpoint's own where the device computes "
            "in it natively, else float32.",
        ),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int4", "fp8"],
        setting(
            _MODEL,
            "Quantize weight matrices while loading: int8 and int4 with one scale for every 32 "
            "inputs, fp8 (E4M3, on a GPU) with one for each output; on one device, all decoders "
            "that our own code computes, except GPT-2. Those that are kept in few bits stay as "
            "they are.",
        ),
    ] = "none"
    seed: Annotated[int, setting(_MODEL, "Seed of dummy weights.", ge=0, le=2**63 - 1)] = 0
    max_model_len: (
        Annotated[
            int, setting(_MODEL, "Longest prompt plus output, in tokens.", ge=1, le=16_777_216)
        ]
        | None
    ) = None
    pooling: Annotated[
        Literal["auto", "mean", "last", "cls"],
        setting(
            _MODEL,
            "How an embedding is pooled: mean of all tokens, last or first (cls). auto: as "
            "the checkpoint says, else last for a decoder and mean for an encoder.",
        ),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "cuda"], setting(_HARDWARE, "auto: a CUDA device if there is one.")
    ] = "auto"
    tensor_parallel_size: Annotated[
        int,
        setting(
            _HARDWARE,
            "Devices that share the model, each with a part of every layer: GPUs of this "
            "machine (or processes on a CPU, to try it out).",
            ge=1,
            le=64,
        ),
    ] = 1
    tensor_parallel_hosts: Annotated[
        int,
        setting(
            _HARDWARE,
            "Hosts that have these devices, as many each: this one, and others that run 'quire "
            "join'.",
            ge=1,
            le=64,
        ),
    ] = 1
    ranks_host: Annotated[
        str,
        setting(
            _HARDWARE,
            "With --tensor-parallel-hosts, the address of this host at which others join; "
            ":: means all, of IPv6 and IPv4.",
            min_length=1,
            max_length=253,
        ),
    ] = "::"
    ranks_port: Annotated[
        int, setting(_HARDWARE, "The port at which they join; 0: a free one.", ge=0, le=65535)
    ] = 29500
    ranks_secret: (
        Annotated[
            str,
            setting(
                _HARDWARE,
                "What a host must know to join; required with --tensor-parallel-hosts.",
                secret=True,
                min_length=16,
                max_length=1024,
            ),
        ]
        | None
    ) = None
    symmetric_memory: Annotated[
        bool,
        setting(
            _HARDWARE,
            "With --tensor-parallel-size on GPUs that reach each other's memory, add up few rows "
            "through torch's symmetric memory, and all others by NCCL.",
        ),
    ] = True
    data_parallel_size: Annotated[
        int,
        setting(
            _HARDWARE,
            "Number of engines, each with a copy of the model and its own GPUs "
            "(tensor-parallel-size of them) or an equal share of the CPU's cores.",
            ge=1,
            le=64,
        ),
    ] = 1
    cpu_path: Annotated[
        Literal["auto", "torch"],
        setting(
            _HARDWARE,
            "How a CPU computes. auto: by our own C code, compiled at the first start, if there is "
            "a compiler and the code supports the model, else by torch; torch: by torch alone.",
        ),
    ] = "auto"
    gpu_path: Annotated[
        Literal["auto", "torch", "triton"],
        setting(
            _HARDWARE,
            "How a GPU computes. auto: by our own Triton kernels if triton is installed and they "
            "support the model, else by torch; torch: by torch alone; triton: fail without them.",
        ),
    ] = "auto"
    attention: Annotated[
        Literal["auto", "triton", "cudnn", "flashinfer"],
        setting(
            _HARDWARE,
            "Attention kernels on a GPU. triton: our own; cudnn: cuDNN's where a long prompt, or "
            "its first part, is computed (16-bit models), our own for all else; flashinfer: that "
            "package's for steps with 512 tokens of prompts or more (16-bit models; to be "
            "installed besides), our own for all else; auto: triton.",
        ),
    ] = "auto"
    deterministic: Annotated[
        bool,
        setting(
            _HARDWARE,
            "Make each token of a greedy or seeded request the same to the bit on this machine, "
            "whatever else is in the batch, however its prompt is divided and whatever the prefix "
            "cache has. Slower; needs our own CPU or GPU code.",
        ),
    ] = False
    cuda_graphs: Annotated[
        bool, setting(_HARDWARE, "On a GPU, record steps as CUDA graphs and replay them.")
    ] = True
    programmatic_launch: Annotated[
        bool,
        setting(
            _HARDWARE,
            "On a GPU of compute capability 9.0 or later, let our kernels start before the "
            "previous one has ended (programmatic dependent launch).",
        ),
    ] = True
    gpu_memory_utilization: Annotated[
        float, setting(_HARDWARE, "Share of GPU memory that the engine may fill.", gt=0, le=1)
    ] = 0.9
    threads: (
        Annotated[
            int,
            setting(
                _HARDWARE,
                "CPU threads; default: OMP_NUM_THREADS, else physical cores - 1, and 1 for a "
                "tiny model.",
                ge=1,
                le=512,
            ),
        ]
        | None
    ) = None
    max_num_seqs: (
        Annotated[
            int,
            setting(
                _BATCHING,
                "Maximum number of sequences in one step. Default: 64, or 256 on a large GPU (64 "
                "GiB of memory or more) whose model our kernels compute.",
                ge=1,
                le=4096,
            ),
        ]
        | None
    ) = None
    max_num_batched_tokens: (
        Annotated[
            int,
            setting(
                _BATCHING,
                "Token budget of one step. Default: 2048, or 8192 on a large GPU (as for "
                "max-num-seqs).",
                ge=16,
                le=1_048_576,
            ),
        ]
        | None
    ) = None
    max_decode_slowdown: Annotated[
        float,
        setting(
            _BATCHING,
            "While answers are generated, prompts may lengthen a step at most by this "
            "factor, estimated from earlier steps.",
            gt=1,
            le=1000,
        ),
    ] = 1.6
    async_scheduling: (
        Annotated[
            bool,
            setting(
                _BATCHING,
                "Plan and launch a step before the last one's tokens are read. Default: only "
                "on a GPU.",
            ),
        ]
        | None
    ) = None
    block_size: (
        Annotated[
            Literal[8, 16, 32, 64],
            setting(
                _KV_CACHE,
                "Tokens held by one KV-cache block. Default: 16, or 64 on a large GPU (as for "
                "max-num-seqs).",
            ),
        ]
        | None
    ) = None
    num_kv_blocks: (
        Annotated[
            int,
            setting(
                _KV_CACHE,
                "KV-cache blocks; default: as many as fit in memory.",
                ge=2,
                le=16_777_216,
            ),
        ]
        | None
    ) = None
    kv_cache_memory: Annotated[
        int, setting(_KV_CACHE, "Maximum bytes for the KV cache on a CPU.", ge=1 << 20)
    ] = 1 << 30
    kv_cache_dtype: Annotated[
        Literal["auto", "fp8"],
        setting(
            _KV_CACHE,
            "Data type of the KV cache. auto: the model's dtype, or float16 where a CPU multiplies "
            "weights of few bits in integers; fp8: 8-bit floats (e4m3), which halve its memory and "
            "cost some precision.",
        ),
    ] = "auto"
    enable_prefix_caching: Annotated[
        bool, setting(_KV_CACHE, "Reuse the KV-cache blocks of equal prompt prefixes.")
    ] = True

    @property
    def ranks_per_host(self) -> int:
        return self.tensor_parallel_size // self.tensor_parallel_hosts

    def sizes(self, default: StepSizes = SIZES) -> StepSizes:
        """Return the sizes as configured, else those of ``default``."""
        return StepSizes(
            self.max_num_seqs or default.max_num_seqs,
            self.max_num_batched_tokens or default.max_num_batched_tokens,
            self.block_size or default.block_size,
        )


def hosts_problem(config: EngineConfig) -> str | None:
    """Say what is wrong with the settings of several hosts, together."""
    hosts, size = config.tensor_parallel_hosts, config.tensor_parallel_size
    if hosts == 1:
        return None
    if size % hosts:
        return (
            f"--tensor-parallel-hosts {hosts} does not divide --tensor-parallel-size {size}: "
            "each host has as many devices"
        )
    if config.data_parallel_size > 1:
        return (
            "--tensor-parallel-hosts: one engine uses several hosts; start more servers in "
            f"place of --data-parallel-size {config.data_parallel_size}"
        )
    if config.ranks_secret is None:
        return (
            "--tensor-parallel-hosts needs a secret that the other hosts know: set "
            "QUIRE_RANKS_SECRET_FILE or QUIRE_RANKS_SECRET"
        )
    return None
