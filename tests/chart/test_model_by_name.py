"""A model by its name: the init container fills the claim, and the server finds it there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocket import MODEL_DIR
from service.hub.place import ModelPlace
from tests.chart.conftest import component, server_container
from tests.chart.helms import ROOT, Helm4, Manifest, RefusedError, Values, objects
from tests.service.hub_server import HubServer, Repository

pytestmark = pytest.mark.chart

NAME = "quire/pocket"
BY_NAME: Values = {"model": {"name": NAME}}


def rendered(helm: Helm4, model: Values, **more: object) -> list[Manifest]:
    return objects(helm.render({"model": {"name": NAME, **model}, **more}))


def pod_of(manifests: list[Manifest]) -> Manifest:
    spec: Manifest = component(manifests, "Deployment", "server")["spec"]["template"]["spec"]
    return spec


def init_of(manifests: list[Manifest]) -> Manifest:
    (container,) = pod_of(manifests)["initContainers"]
    return dict(container)


def volume(manifests: list[Manifest], name: str = "model") -> Manifest:
    (found,) = (one for one in pod_of(manifests)["volumes"] if one["name"] == name)
    return dict(found)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer({NAME: Repository.of(MODEL_DIR)}) as server:
        yield server


def test_without_a_name_nothing_is_downloaded(helm4: Helm4) -> None:
    manifests = objects(helm4.render({}))
    assert "initContainers" not in pod_of(manifests)
    assert not [each for each in manifests if each["kind"] == "PersistentVolumeClaim"]


@pytest.mark.proves("models", "chart")
def test_three_init_containers_on_one_claim_fill_it_once_and_the_server_needs_no_hub(
    helm4: Helm4, hub: HubServer, tmp_path: Path
) -> None:
    """The chart's own arguments, on a directory in place of the claim."""
    commit = hub.repositories[NAME].commit
    manifests = rendered(helm4, {"revision": commit, "mountPath": str(tmp_path / "claim")})
    command = [sys.executable, "-m", "service.cli", *init_of(manifests)["args"]]
    environment = {**os.environ, **hub.environment(tmp_path / "home")}
    pods = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for pod in pods:
        assert "all checksums right" in pod.communicate(timeout=60)[0]
        assert pod.returncode == 0
    assert len(hub.downloads("model.safetensors")) == 1
    server = server_container(component(manifests, "Deployment", "server"))
    verb, name, directory_flag, directory, revision_flag, revision, *_ = server["args"]
    assert (verb, directory_flag, revision_flag) == ("serve", "--download-dir", "--revision")
    assert ModelPlace.of(name, revision, directory).whole_snapshot() is not None
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in server["env"]
    hub.requests.clear()
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert (again.returncode, hub.requests) == (0, [])


def test_the_claim_is_written_by_the_init_container_only(helm4: Helm4) -> None:
    manifests = rendered(helm4, {"existingClaim": "models", "mountPath": "/data"})
    assert volume(manifests)["persistentVolumeClaim"] == {"claimName": "models"}
    (written,) = (one for one in init_of(manifests)["volumeMounts"] if one["name"] == "model")
    assert written == {"name": "model", "mountPath": "/data"}
    container = server_container(component(manifests, "Deployment", "server"))
    (read,) = (one for one in container["volumeMounts"] if one["name"] == "model")
    assert read == {"name": "model", "mountPath": "/data", "readOnly": True}


def test_a_created_claim_outlives_the_release(helm4: Helm4) -> None:
    claim = {"create": True, "size": "40Gi", "storageClassName": "fast"}
    manifests = rendered(helm4, {"claim": claim}, updateStrategy={"type": "Recreate"})
    (made,) = (each for each in manifests if each["kind"] == "PersistentVolumeClaim")
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert made["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "40Gi"}},
    }
    used = volume(manifests)["persistentVolumeClaim"]
    assert used == {"claimName": made["metadata"]["name"]}


def test_without_a_claim_each_pod_has_its_own_volume(helm4: Helm4) -> None:
    assert volume(rendered(helm4, {}))["emptyDir"] == {}


def test_the_token_is_a_file_of_the_init_container_alone(helm4: Helm4) -> None:
    token = {"existingSecret": "hub", "secretKey": "hf"}
    manifests = rendered(helm4, {"token": token, "downloadEnv": [{"name": "X", "value": "y"}]})
    init = init_of(manifests)
    path = "/run/secrets/quire-hub/token"
    assert init["env"] == [{"name": "HF_TOKEN_PATH", "value": path}, {"name": "X", "value": "y"}]
    secret = volume(manifests, "hub-token")["secret"]
    assert secret["items"] == [{"key": "hf", "path": "token"}]
    container = server_container(component(manifests, "Deployment", "server"))
    assert "hub-token" not in {one["name"] for one in container["volumeMounts"]}
    assert not {"HF_TOKEN", "HF_TOKEN_PATH"} & {one["name"] for one in container["env"]}


def test_the_init_container_is_as_restricted_as_the_server(helm4: Helm4) -> None:
    manifests = rendered(helm4, {})
    init, server = (
        init_of(manifests),
        server_container(component(manifests, "Deployment", "server")),
    )
    for key in ("image", "imagePullPolicy", "securityContext", "terminationMessagePolicy"):
        assert init[key] == server[key]
    assert set(init["resources"]) == {"requests", "limits"}


def test_a_rollout_waits_for_a_download_of_an_hour(helm4: Helm4) -> None:
    seconds = [
        component(objects(helm4.render(values)), "Deployment", "server")["spec"][
            "progressDeadlineSeconds"
        ]
        for values in ({}, BY_NAME)
    ]
    assert seconds[1] - seconds[0] == 3600


def test_values_of_an_older_chart_do_not_know_names(helm4: Helm4) -> None:
    """--reuse-values brings none of the new keys."""
    model = {"token": None, "claim": None, "downloadEnv": None, "downloadResources": None}
    manifests = objects(helm4.render({"model": {**model, "name": None, "revision": None}}))
    assert "initContainers" not in pod_of(manifests)


def test_a_name_and_a_path_contradict_each_other(helm4: Helm4) -> None:
    with pytest.raises(RefusedError, match=r"model\.path"):
        rendered(helm4, {"path": "/models/x"})
