"""What a pod of the chart does when it starts, is watched, is replaced and stops."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dashboard.__main__ import parse as parse_dashboard
from dashboard.discovery import Discovery
from dashboard.settings import ADMIN_VARIABLE, SERVERS_VARIABLE, Server, watched
from engine.options import options
from service.settings import ServiceSettings
from service.store.place import state_dir
from tests.chart.conftest import as_deployments, component, dockerfile, server_container
from tests.chart.helms import CHART, Helm, Manifest, Values, objects

pytestmark = pytest.mark.chart


def deployments(manifests: list[Manifest]) -> list[Manifest]:
    """Those whose pods have a port: servers and the dashboard, not a group's workers."""
    return [each for each in all_deployments(manifests) if "ports" in server_container(each)]


def all_deployments(manifests: list[Manifest]) -> list[Manifest]:
    every = (each for manifest in manifests for each in as_deployments(manifest))
    return [each for each in every if each["kind"] == "Deployment"]


def seconds_probed(probe: Manifest) -> int:
    product: int = probe["periodSeconds"] * probe["failureThreshold"]
    return product


@pytest.mark.proves("drain", "chart")
def test_the_grace_period_holds_the_pause_the_drain_and_a_margin(
    server: Manifest, merged: Values
) -> None:
    pod = server["spec"]["template"]["spec"]
    container = server_container(server)
    argument = container["args"].index("--drain-timeout") + 1
    drain = int(container["args"][argument])
    pause = 0
    if "lifecycle" in container:
        [program, seconds] = container["lifecycle"]["preStop"]["exec"]["command"]
        assert program == "sleep"
        pause = int(seconds)
    assert drain == merged["drain"]["timeoutSeconds"]
    assert pause == merged["drain"]["preStopSeconds"]
    assert pod["terminationGracePeriodSeconds"] == pause + drain + merged["drain"]["marginSeconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + drain + 5


def test_a_rollout_does_not_give_up_while_a_model_may_still_load(server: Manifest) -> None:
    startup = server_container(server)["startupProbe"]
    grace = server["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert server["spec"]["progressDeadlineSeconds"] > seconds_probed(startup) + grace


def test_every_pod_has_startup_readiness_and_liveness_probes(manifests: list[Manifest]) -> None:
    for each in deployments(manifests):
        container = server_container(each)
        port = container["ports"][0]["name"]
        assert port == "http"
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[kind]["httpGet"]["port"] == port
            assert container[kind]["timeoutSeconds"] <= container[kind]["periodSeconds"]


def test_a_pod_under_load_leaves_the_service_long_before_it_would_be_killed(
    server: Manifest,
) -> None:
    container = server_container(server)
    assert seconds_probed(container["readinessProbe"]) * 4 < seconds_probed(
        container["livenessProbe"]
    )


def test_a_rollout_can_replace_a_pod(server: Manifest) -> None:
    strategy = server["spec"]["strategy"]
    if strategy["type"] == "Recreate":
        assert "rollingUpdate" not in strategy
    else:
        room = [strategy["rollingUpdate"][side] for side in ("maxSurge", "maxUnavailable")]
        assert any(str(pods).rstrip("%") != "0" for pods in room)


def test_a_read_only_root_still_has_a_home_and_a_tmp(manifests: list[Manifest]) -> None:
    home = next(
        line.split("HOME=")[1].split()[0]
        for line in dockerfile().read_text().splitlines()
        if "HOME=" in line
    )
    for each in deployments(manifests):
        volumes = {v["name"]: v for v in each["spec"]["template"]["spec"]["volumes"]}
        writable = {
            mount["mountPath"]
            for mount in server_container(each)["volumeMounts"]
            if "emptyDir" in volumes[mount["name"]]
        }
        assert {home, "/tmp"} <= writable


def test_every_mount_has_its_volume(manifests: list[Manifest]) -> None:
    for each in deployments(manifests):
        pod = each["spec"]["template"]["spec"]
        volumes = [volume["name"] for volume in pod["volumes"]]
        assert len(set(volumes)) == len(volumes)
        used = set()
        for container in (*pod.get("initContainers", ()), server_container(each)):
            mounts = container.get("volumeMounts", [])
            assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
            used |= {mount["name"] for mount in mounts}
        assert sorted(volumes) == sorted(used)


def test_selectors_meet_their_own_pods_and_no_others(manifests: list[Manifest]) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in all_deployments(manifests)
    }

    def met(selector: dict[str, str], among: Sequence[dict[str, Any]] = ()) -> list[str]:
        """``among``: expressions, each with the values that a label may have."""
        return [
            name
            for name, labels in pods.items()
            if selector.items() <= labels.items()
            and all(labels[each["key"]] in each["values"] for each in among)
        ]

    for each in manifests:
        name = each["metadata"]["name"]
        if each["kind"] == "Deployment":
            assert met(each["spec"]["selector"]["matchLabels"]) == [name]
        elif each["kind"] == "Service":
            # The admin API, and what watches each pod, have separate Services for the same pods.
            server = name.removesuffix("-admin").removesuffix("-replicas")
            assert met(each["spec"]["selector"]) == [server]
        elif each["kind"] == "PodDisruptionBudget":
            selector = each["spec"]["selector"]
            found = met(selector["matchLabels"], selector.get("matchExpressions", ()))
            assert set(found) == {name} | ({f"{name}-worker"} & pods.keys())


def test_service_ports_lead_to_the_port_that_listens(manifests: list[Manifest]) -> None:
    for each in deployments(manifests):
        container = server_container(each)
        listening = {port["name"]: port["containerPort"] for port in container["ports"]}
        flags = {"http": "--port", "grpc": "--grpc-port", "admin": "--admin-port"}
        assert listening == {
            name: int(container["args"][container["args"].index(flag) + 1])
            for name, flag in flags.items()
            # Without a Service the admin API listens inside the pod only.
            if flag in container["args"] and (name != "admin" or name in listening)
        }
        service = next(
            m
            for m in manifests
            if m["kind"] == "Service" and m["metadata"]["name"] == each["metadata"]["name"]
        )
        public = [name for name in listening if name != "admin"]
        assert [port["targetPort"] for port in service["spec"]["ports"]] == public


def test_grpc_has_a_port_only_if_one_is_configured(helm: Helm) -> None:
    def ports(values: Values) -> list[tuple[str, int, str | None]]:
        rendered = objects(helm.render(values))
        spec = component(rendered, "Service", "server")["spec"]["ports"]
        return [(port["name"], port["port"], port.get("appProtocol")) for port in spec]

    http = ("http", 8000, None)
    assert ports({}) == [http]
    assert ports({"server": {"grpcPort": 9100}}) == [http, ("grpc", 9000, "kubernetes.io/h2c")]


@pytest.mark.proves("dashboard", "chart")
def test_the_dashboard_sees_each_pod_by_itself(helm: Helm) -> None:
    """Counters of pods that take turns at one address would look like restarts, and be added."""
    values: Values = {"dashboard": {"enabled": True}, "service": {"port": 80}}
    with_admin = {"admin": {"existingSecret": "admin", "port": 8100}}
    for more, admin in (({}, "none"), (with_admin, "dns+http://demo-quire-replicas:8100")):
        rendered = objects(helm.render(values | more))
        headless = component(rendered, "Service", "replicas")
        assert headless["spec"]["clusterIP"] == "None"
        assert headless["spec"]["publishNotReadyAddresses"] is True
        container = server_container(component(rendered, "Deployment", "dashboard"))
        parsed = parse_dashboard(container["args"][1:])
        assert parsed.url == [f"dns+http://{headless['metadata']['name']}:8000"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        environment[SERVERS_VARIABLE] = parsed.url[0]
        assert environment[ADMIN_VARIABLE] == admin
        found = watched(environment, Discovery(lambda name: ["10.0.0.1", "10.0.0.2"]))
        expected = "" if admin == "none" else "http://10.0.0.2:8100"
        assert found[1] == Server("http://10.0.0.2:8000", expected)
        listening = {port["targetPort"] for port in headless["spec"]["ports"]}
        assert listening == ({"http", "admin"} if more else {"http"})


def test_engines_divide_the_gpus_of_a_pod(helm: Helm) -> None:
    for count, engines, each in [(0, 2, 0), (2, 2, 1), (8, 4, 2)]:
        values = {
            "model": {"path": "/model"},
            "gpu": {"count": count},
            "dataParallelSize": engines,
            "apiWorkers": 3,
        }
        rendered = objects(helm.render(values))
        arguments = server_container(component(rendered, "Deployment", "server"))["args"]
        assert arguments[arguments.index("--data-parallel-size") + 1] == str(engines)
        assert arguments[arguments.index("--api-workers") + 1] == "3"
        flag = "--tensor-parallel-size"
        assert (flag in arguments) == (each > 1)
        if each > 1:
            assert arguments[arguments.index(flag) + 1] == str(each)


def test_a_gpu_is_asked_of_the_cluster_and_of_the_server(helm: Helm) -> None:
    """Without --device cuda a pod that finds no driver would quietly serve from its CPU."""
    for count, device in [(0, "cpu"), (1, "cuda"), (4, "cuda")]:
        rendered = objects(helm.render({"model": {"path": "/model"}, "gpu": {"count": count}}))
        container = server_container(component(rendered, "Deployment", "server"))
        assert container["args"][container["args"].index("--device") + 1] == device
        flag = "--tensor-parallel-size"
        assert (flag in container["args"]) == (count > 1)
        if count > 1:
            assert container["args"][container["args"].index(flag) + 1] == str(count)
        assert container["resources"]["limits"].get("nvidia.com/gpu", 0) == count
        assert container["resources"]["limits"]["memory"] == "4Gi"


def secret_files(helm: Helm, values: Values) -> tuple[dict[str, tuple[str, str]], Manifest]:
    """Path in the container -> Secret and entry, and the container."""
    deployment = component(objects(helm.render(values)), "Deployment", "server")
    container = server_container(deployment)
    [volume] = [
        each for each in deployment["spec"]["template"]["spec"]["volumes"] if "projected" in each
    ]
    [folder] = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == volume["name"]]
    files = {
        f"{folder}/{item['path']}": (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    return files, container


@pytest.mark.parametrize(
    ("entry", "ending"), [("api-key", "txt"), ("keys.toml", "toml"), ("keys.json", "json")]
)
def test_keys_are_a_file_that_is_read_again(helm: Helm, entry: str, ending: str) -> None:
    given = {"auth": {"existingSecret": "keys", "secretKey": entry}}
    files, container = secret_files(helm, given)
    path = f"/etc/quire/secrets/keys.{ending}"
    assert files == {path: ("keys", entry)}
    assert container["args"][container["args"].index("--keys-file") + 1] == path
    assert "env" not in container
    assert not [each for each in objects(helm.render(given)) if each["kind"] == "Secret"]


def test_a_keys_file_of_ones_own_stays(helm: Helm) -> None:
    """As older values have it: the Secret's keys are then read at the start only."""
    own: Values = {"auth": {"existingSecret": "keys"}, "extraArgs": ["--keys-file", "/keys.toml"]}
    _, container = secret_files(helm, own)
    assert container["args"].count("--keys-file") == 1
    assert container["env"] == [
        {"name": "QUIRE_API_KEY_FILE", "value": "/etc/quire/secrets/keys.txt"}
    ]


def test_other_secrets_are_files_that_the_server_reads(helm: Helm) -> None:
    """Their variables are those of secret settings."""
    given = {name: {"existingSecret": f"of-{name}"} for name in ("store", "signing", "admin")}
    files, container = secret_files(helm, given)
    variables = {option.file_variable for option in options(ServiceSettings) if option.secret}
    named = {each["name"]: each["value"] for each in container["env"]}
    assert named.keys() <= variables
    assert {name: files[path] for name, path in named.items()} == {
        "QUIRE_STORE_URL_FILE": ("of-store", "url"),
        "QUIRE_SIGNING_KEY_FILE": ("of-signing", "signing-key"),
        "QUIRE_ADMIN_KEY_FILE": ("of-admin", "admin-key"),
    }


def test_only_the_servers_user_reads_secrets(helm: Helm) -> None:
    def mode(values: Values) -> int:
        pod = component(objects(helm.render(values)), "Deployment", "server")["spec"]["template"]
        [volume] = [each for each in pod["spec"]["volumes"] if "projected" in each]
        return int(volume["projected"]["defaultMode"])

    keys = {"auth": {"existingSecret": "keys"}}
    assert mode(keys) == 0o440
    nobodys = {"securityContext": {"fsGroup": None}}
    assert mode(keys | nobodys) == 0o444, "the group is not the user's"


def test_the_store_is_where_the_server_writes_it_by_itself(helm: Helm) -> None:
    """And that is writable, with a claim or without one."""
    given = {"store": {"existingClaim": "kept"}, "updateStrategy": {"type": "Recreate"}}
    mounts = [
        {
            mount["mountPath"]: mount["name"]
            for mount in server_container(
                component(objects(helm.render(values)), "Deployment", "server")
            )["volumeMounts"]
        }
        for values in ({}, given)
    ]
    home = "/home/quire"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_STATE_HOME", raising=False)
        patch.setenv("HOME", home)
        folder = str(state_dir())
    assert folder.startswith(f"{home}/")
    assert folder not in mounts[0]
    assert mounts[0][home] == "home"
    assert mounts[1][folder] == "store"


def test_the_dashboard_may_have_its_own_image(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64

    def image(values: Values) -> str:
        rendered = objects(helm.render({"dashboard": {"enabled": True}} | values))
        container = server_container(component(rendered, "Deployment", "dashboard"))
        return str(container["image"])

    pinned = {"image": {"repository": "r.example/quire", "digest": digest}}
    other = {"dashboard": {"enabled": True, "image": {"tag": "cpu"}}}
    assert image({}) == "quire:0.1.0"
    assert image(pinned) == f"r.example/quire@{digest}"
    # The server's digest names another image: it must not swallow the dashboard's tag.
    assert image(pinned | other) == "r.example/quire:cpu"


def test_labels_of_ones_own_never_change_what_selects_the_pods(helm: Helm) -> None:
    taken = {"app.kubernetes.io/component": "mine", "team": "ml"}
    rendered = objects(helm.render({"podLabels": taken}))
    labels = component(rendered, "Deployment", "server")["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "server"
    assert labels["team"] == "ml"


def spread(helm: Helm, values: Values) -> Any:
    pod = component(objects(helm.render(values)), "Deployment", "server")["spec"]["template"][
        "spec"
    ]
    return pod.get("topologySpreadConstraints")


def test_pods_spread_by_their_own_labels(helm: Helm) -> None:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    other = {"matchLabels": {"app": "other"}}
    constraints = [base, base | {"labelSelector": other}]
    [first, second] = spread(helm, {"topologySpreadConstraints": constraints})
    own = component(objects(helm.render({})), "Deployment", "server")["spec"]["selector"]
    assert first["labelSelector"] == own
    assert second["labelSelector"] == other


def test_pods_spread_over_nodes_unless_told_not_to(helm: Helm) -> None:
    [default] = spread(helm, {})
    assert default["topologyKey"] == "kubernetes.io/hostname"
    assert default["whenUnsatisfiable"] == "ScheduleAnyway", "one node must do"
    assert spread(helm, {"topologySpreadConstraints": []}) is None


def test_a_node_drain_takes_one_pod_at_a_time(helm: Helm) -> None:
    [budget] = [each for each in objects(helm.render({})) if each["kind"] == "PodDisruptionBudget"]
    selector = component(objects(helm.render({})), "Deployment", "server")["spec"]["selector"]
    assert budget["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": selector,
    }
    off = objects(helm.render({"podDisruptionBudget": {"enabled": False}}))
    assert "PodDisruptionBudget" not in {each["kind"] for each in off}


def test_null_leaves_the_number_of_pods_out(helm: Helm) -> None:
    """With a cluster it is the number that runs there: tests/chart/test_releases.py."""

    def spec(count: int | None) -> Any:
        rendered = objects(helm.render({"replicaCount": count}))
        return component(rendered, "Deployment", "server")["spec"]

    assert spec(0)["replicas"] == 0
    assert spec(3)["replicas"] == 3
    assert "replicas" not in spec(None)


def test_the_dashboard_inherits_nothing_that_is_the_servers(helm: Helm) -> None:
    values = {
        "dashboard": {"enabled": True},
        "priorityClassName": "gpu",
        "podAnnotations": {"example.com/role": "reader"},
        "serviceAccount": {"annotations": {"example.com/cloud-role": "reads-models"}},
        "nodeSelector": {"gpu": "yes"},
    }
    rendered = objects(helm.render(values))
    template = component(rendered, "Deployment", "dashboard")["spec"]["template"]
    pod = template["spec"]
    assert "annotations" not in template["metadata"]
    assert not {"priorityClassName", "nodeSelector"} & pod.keys()
    account = component(rendered, "ServiceAccount", "dashboard")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert "annotations" not in account["metadata"]
    own = {"dashboard": {"enabled": True, "priorityClassName": "low", "podAnnotations": {"a": "b"}}}
    template = component(objects(helm.render(own)), "Deployment", "dashboard")["spec"]["template"]
    assert template["spec"]["priorityClassName"] == "low"
    assert template["metadata"]["annotations"] == {"a": "b"}


def test_what_a_pod_may_write_is_limited_and_set_aside(
    manifests: list[Manifest], merged: Values
) -> None:
    """A pod over a limit is evicted alone; without limits it fills the node for all."""
    for each in deployments(manifests):
        volumes = each["spec"]["template"]["spec"]["volumes"]
        sizes = {v["name"]: v["emptyDir"].get("sizeLimit") for v in volumes if "emptyDir" in v}
        if each["metadata"]["name"].endswith("-dashboard"):
            assert sizes["home"]
            assert sizes["tmp"]
        else:
            assert {"home": sizes["home"], "tmp": sizes["tmp"]} == merged["scratch"]
        resources = server_container(each)["resources"]
        assert "ephemeral-storage" in resources["requests"]
        assert "ephemeral-storage" in resources["limits"]


def test_compiled_kernels_can_be_kept(helm: Helm) -> None:
    """Where the image has them: Triton's, torch's and ours."""
    [line] = [line for line in dockerfile().read_text().splitlines() if "TRITON_CACHE_DIR" in line]
    rendered = objects(helm.render({"kernelCache": {"existingClaim": "kernels"}}))
    container = server_container(component(rendered, "Deployment", "server"))
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "cache"]
    assert f"={mount['mountPath']}/" in line
    assert mount["mountPath"].endswith("/.cache"), "XDG_CACHE_HOME of engine/cpu/library.py"


def test_a_registry_is_put_in_front_of_every_image(helm: Helm) -> None:
    def images(values: Values) -> set[str]:
        rendered = objects(helm.render({"dashboard": {"enabled": True}} | values))
        return {server_container(each)["image"] for each in deployments(rendered)}

    assert images({"image": {"registry": "r.example:5000"}}) == {"r.example:5000/quire:0.1.0"}
    everywhere = {"global": {"imageRegistry": "g.example", "imagePullSecrets": [{"name": "pull"}]}}
    assert images(everywhere) == {"g.example/quire:0.1.0"}
    assert images(everywhere | {"image": {"registry": "r.example"}}) == {"r.example/quire:0.1.0"}
    for each in deployments(objects(helm.render(everywhere))):
        assert each["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]


def test_a_build_number_in_the_version_becomes_a_valid_tag_and_label(
    helm: Helm, tmp_path: Path
) -> None:
    chart = tmp_path / "quire"
    shutil.copytree(CHART, chart)
    about = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(about.replace('appVersion: "0.1.0"', "appVersion: 0.1.0+7"))
    deployment = component(objects(helm.render({}, chart)), "Deployment", "server")
    assert server_container(deployment)["image"] == "quire:0.1.0_7"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == "0.1.0_7"
