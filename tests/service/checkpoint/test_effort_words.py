"""Words that a template compares a variable with, apart from others that it has in quotes."""

from __future__ import annotations

import jinja2
import pytest

from service.checkpoint.effort_words import compared_words

ROLES = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ m['content'] }}"
    "{% elif m.role in ['tool', 'assistant'] %}{{ {'tool': 'x'}[m.role] }}{% endif %}{% endfor %}"
)


def words(source: str) -> set[str]:
    return set(compared_words(jinja2.Environment(autoescape=True).parse(ROLES + source), "effort"))


@pytest.mark.parametrize(
    "source",
    [
        "{% if effort == 'deep' %}{% endif %}",
        "{% if 'deep' == effort | lower %}{% endif %}",
        "{% if effort.lower() != 'deep' %}{% endif %}",
        "{% if effort is defined and effort in ['deep'] %}{% endif %}",
        "{% if effort not in ('deep',) %}{{ raise_exception('user') }}{% endif %}",
        "{% set known = ['deep'] %}{% if effort in known %}{% endif %}",
        "{% if effort is eq('deep') %}{% endif %}",
        "{% set budgets = {'deep': 'x'} %}{{ budgets[effort] }}",
        "{{ {'deep': 1}.get(effort, 0) }}",
        "{% if effort in {'deep': 1}.keys() %}{% endif %}",
        "{% set level = effort | default('deep') %}",
        "{% set level = effort or 'deep' %}",
        "{% if effort is not defined %}{% set effort = 'deep' %}{% endif %}",
        "{% set level = effort if effort else none %}{% if level == 'deep' %}{% endif %}",
        "{% set ns = namespace(level=effort) %}{% if ns.level == 'deep' %}{% endif %}",
        "{% set ns = namespace() %}{% set ns.a = effort %}{% set b = ns.a %}{{ {'deep': 1}[b] }}",
        "{% macro system() %}{% if effort == 'deep' %}{% endif %}{% endmacro %}",
        "{% for e in ['deep'] %}{% if effort is defined and e == effort %}{% endif %}{% endfor %}",
        "{% for e, n in {'deep': 1}.items() %}{% if e == effort %}{% endif %}{% endfor %}",
        "{% for e, n in (('deep', 1), (effort, 2)) %}{% if e == effort %}{% endif %}{% endfor %}",
        "{% with e = effort %}{% if e == 'deep' %}{% endif %}{% endwith %}",
        "{% set e %}{{ effort }}{% endset %}{% if e == 'deep' %}{% endif %}",
        "{% set e, n = effort, 1 %}{% if e == 'deep' %}{% endif %}",
        "{% if effort ~ '' == 'deep' %}{% endif %}",
        "{% if '' + effort == 'deep' %}{% endif %}",
        "{% if effort in ['deep'] + [] %}{% endif %}",
        "{% set known = [] + ['deep'] %}{% if effort in known %}{% endif %}",
        "{% if effort.startswith('deep') %}{% endif %}",
        "{% if effort.split('-')[0] == 'deep' %}{% endif %}",
        "{% if ['deep'] | select('equalto', effort) | list %}{% endif %}",
        "{% macro m(e) %}{% if e == 'deep' %}{% endif %}{% endmacro %}{{ m(effort) }}",
        "{% macro m(n, e) %}{% if e == 'deep' %}{% endif %}{% endmacro %}{{ m(1, e=effort) }}",
        "{% set a = [] %}{% set a = a + ['deep'] %}{% if effort in a %}{% endif %}",
    ],
)
def test_words_are_found_however_they_are_compared(source: str) -> None:
    assert words(source) == {"deep"}


@pytest.mark.parametrize(
    "source",
    [
        "{{ effort }}{{ 'a ' + effort }}",
        "{% if effort and messages[0].role == 'system' %}{% endif %}",
        "{% set rest = messages if effort else [] %}{% if rest[0].role == 'system' %}{% endif %}",
        "{% set a = b %}{% set b = a %}{% if effort == a %}{% endif %}",
        "{% if effort == 1 %}{% endif %}{% set (a, b) = (effort, 'x') %}",
        "{% set line = 'Effort: ' + effort %}{{ line }}{{ 'Effort: ' ~ effort }}",
        "{% for call in m.calls if effort %}{% if call.type == 'user' %}{% endif %}{% endfor %}",
        "{% set a = 'x' %}{% set line = a + effort %}{% if line == '' %}{% endif %}",
        "{% set a = 'x' %}{% set a = a + effort if effort else a %}{% if a == 'y' %}{% endif %}",
    ],
)
def test_words_of_something_else_are_not_found(source: str) -> None:
    assert words(source) == set()


def test_a_prompt_that_grows_by_appending_is_no_effort() -> None:
    appended = "{% set ns.out = ns.out + m.role %}" * 12
    source = "{% set ns = namespace(out='x') %}" + appended + "{% set ns.out = ns.out + effort %}"
    assert words(source) == set()


def test_names_that_are_set_to_each_other_many_times_are_followed_once() -> None:
    pairs = "{% set a = a or b %}{% set b = b or a %}" * 100  # more ways than can be tried
    chain = "".join(f"{{% set a{n} = a{n - 1} %}}" for n in range(1, 300))
    compared = "{% set a0 = 'deep' %}{% set b = a299 %}{% if effort == a %}{% endif %}"
    assert words(pairs + chain + compared) == {"deep"}
