"""Whatever valid values: both Helms make the same of them, and Kubernetes accepts that."""

from __future__ import annotations

import json

import kubernetes_validate
import pytest

from tests.chart.conftest import pod_specs
from tests.chart.helms import Helm3, Helm4, Manifest, RefusedError, Values, objects
from tests.chart.kubernetes import VERSIONS, check
from tests.chart.test_policy import insecure
from tests.chart.valid_values import SCHEMA, leaves, random_values

KEYS = {name for path, _ in leaves(SCHEMA) for name in path}
OLDEST = (1, 28)


def made_by(helm: Helm3 | Helm4, values: Values) -> list[Manifest] | str:
    """Return the objects, or why there are none."""
    try:
        return objects(helm.render(values))
    except RefusedError as error:
        return str(error)


def sound(seed: int, helm3: Helm3, helm4: Helm4, versions: tuple[str, ...]) -> bool:
    """Return whether the values of this seed are valid. Fails if anything else is wrong."""
    values = random_values(seed)
    about = f"seed {seed}: {json.dumps(values)}"
    by_4 = made_by(helm4, values)
    by_3 = made_by(helm3, values)
    if isinstance(by_4, str):
        assert isinstance(by_3, str), about
        assert any(key in by_4 for key in KEYS), f"{about}: the message names no key: {by_4}"
        return False
    assert by_3 == by_4, about
    for each in by_4:
        for version in versions:
            check(each, version)
    for name, pod in pod_specs(by_4):
        assert not list(insecure(pod)), f"{about}: {name}"
    return True


def run(wanted: int, helm3: Helm3, helm4: Helm4, versions: tuple[str, ...]) -> None:
    valid = 0
    for seed in range(wanted * 10):
        valid += sound(seed, helm3, helm4, versions)
        if valid == wanted:
            return
    pytest.fail(f"only {valid} of {wanted * 10} sets of values were valid")


@pytest.mark.chart
def test_some_random_values(helm3: Helm3, helm4: Helm4) -> None:
    run(20, helm3, helm4, (VERSIONS[0], VERSIONS[-1]))


@pytest.mark.slow
def test_two_hundred_random_values_on_every_kubernetes(helm3: Helm3, helm4: Helm4) -> None:
    newest = tuple(int(part) for part in kubernetes_validate.latest_version().split(".")[:2])
    versions = tuple(f"1.{minor}" for minor in range(OLDEST[1], newest[1] + 1))
    assert VERSIONS[0] == versions[0]
    assert VERSIONS[-1] == versions[-1]
    run(200, helm3, helm4, versions)
