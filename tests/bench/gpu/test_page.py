"""The page says which goals are met, and names what failed and what was left out."""

from __future__ import annotations

from typing import Any

from bench.gpu.page import GOALS, RATIOS, page


def result(*rows: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"date": "today", "device": "a GPU", "versions": {"torch": "2"}, "rows": rows} | facts


def test_goals_are_met_or_missed_on_their_own_side() -> None:
    text = page(
        result(
            {"row": "steps qwen3-0.6b batch 1 ctx 256", "ms": 0.85, "of_floor": 0.4},
            {"row": "steps llama-8b batch 1 ctx 256", "ms": 5.0, "of_floor": 0.8},
            {"row": "steps llama-8b batch 64 ctx 1024", "ms": 10.0},
            {"row": "deterministic llama-8b batch 64 ctx 1024", "ms": 11.0},
            {"row": "profile llama-8b batch 64", "gap_share": None},
        )
    )
    assert "| 0.6B alone, a token | 0.85 ms | ≤ 0.90 ms | met |" in text
    assert "| 8B alone, of the floor | 0.80 | ≥ 0.85 | missed |" in text
    assert "| 8B x 64 with --deterministic, ratio | 1.10 | ≤ 1.15 | met |" in text
    assert "| idle between steps, 8B x 64 | not measured | ≤ 0.020 | |" in text
    assert text.count("not measured") == len(GOALS) + len(RATIOS) - 3


def test_a_dry_run_meets_no_goal() -> None:
    row = {"row": "steps qwen3-0.6b batch 1 ctx 256", "ms": 0.85}
    assert "| 0.6B alone, a token | 0.85 ms | ≤ 0.90 ms |  |" in page(result(row, dry=True))


def test_what_failed_and_what_was_left_out_is_named() -> None:
    text = page(
        result(
            {"row": "check gated", "relative_error": 0.0, "took_s": 1.0},
            {"row": "check sampling", "error": "AssertionError: 3", "took_s": 1.0},
            {"row": "nano-vllm qwen3-0.6b", "left_out": "no time left"},
            ceilings={"bandwidth": 3e12, "flops": 8e14},
            clocks={"sm_mhz": 1980.0},
        )
    )
    assert "copy 3,000 GB/s, bf16 800 TFLOP/s; sm_mhz 1980.0" in text
    assert "Correctness: 1 of 2 checks passed." in text
    assert "Failed:\n\n- check sampling: AssertionError: 3\n" in text
    assert "Left out:\n\n- nano-vllm qwen3-0.6b: no time left\n" in text


def test_steps_with_weights_of_few_bits_are_shown() -> None:
    rows = [{"row": f"{bits} llama-8b batch 1 ctx 256", "ms": 3.9} for bits in ("int4", "int8")]
    text = page(result(*rows))
    assert "| int4 llama-8b batch 1 ctx 256 | 3.9 |" in text
    assert "| int8 llama-8b batch 1 ctx 256 | 3.9 |" in text


def test_weights_of_few_bits_are_held_against_their_goals() -> None:
    times = {"steps": 5.6, "int4": 3.1, "fp8": 3.4}
    rows = [{"row": f"{kind} llama-8b batch 1 ctx 256", "ms": ms} for kind, ms in times.items()]
    text = page(result(*rows))
    assert "| int4 alone, times bf16 | 1.81 | ≥ 2.00 | missed |" in text
    assert "| fp8 alone, times bf16 | 1.65 | ≥ 1.60 | met |" in text
    assert "| int4 x 16, times bf16 | not measured | ≥ 1.50 | |" in text


def test_a_search_shows_what_it_found() -> None:
    row = {"row": "tune few_bits int4-32 1 qkv", "table_us": 13.8, "floor_us": 5.81}
    text = page(result(row | {"best": [[9.69, "VectorTiles(4)"], [11.3, "VectorTiles(2)"]]}))
    assert "| int4-32 1 qkv | 13.8 | 9.69 | 5.81 | VectorTiles(4) |\n" in text
    assert "| search" not in page(result(row | {"best": []}))


def test_each_product_shows_its_fastest_kernel() -> None:
    row: dict[str, Any] = {"row": "product llama-8b qkv", "mb": 50.0}
    for count in (1, 4, 16, 64, 256):
        row |= {f"rows_{count}": {"torch": 20.0, "skinny": 15.0}, f"of_floor_{count}": 0.9}
    assert "| llama-8b qkv | skinny 15 us, 0.90 |" in page(result(row))
