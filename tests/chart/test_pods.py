"""What a pod of the chart does when it starts, is watched, is replaced and stops."""

from __future__ import annotations

import pytest

from service.store.place import state_dir
from tests.chart.conftest import component, dockerfile, server_container
from tests.chart.helms import Helm, Manifest, Values, objects

pytestmark = pytest.mark.chart


def deployments(manifests: list[Manifest]) -> list[Manifest]:
    return [each for each in manifests if each["kind"] == "Deployment"]


def seconds_probed(probe: Manifest) -> int:
    product: int = probe["periodSeconds"] * probe["failureThreshold"]
    return product


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


def test_every_pod_meets_the_restricted_pod_security_standard(manifests: list[Manifest]) -> None:
    """Field by field as the Kubernetes documentation lists that standard."""
    allowed_volumes = {
        "emptyDir",
        "persistentVolumeClaim",
        "secret",
        "nfs",
    }  # nfs: an operator's own extra
    for each in deployments(manifests):
        pod = each["spec"]["template"]["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"].get("runAsUser") != 0
        for container in (*pod.get("initContainers", ()), server_container(each)):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in context
        for volume in pod["volumes"]:
            assert volume.keys() - {"name"} <= allowed_volumes


def test_no_pod_gets_a_token_or_the_environment_of_other_services(
    manifests: list[Manifest],
) -> None:
    """A Service named quire would put QUIRE_PORT=tcp://… into pods, which the server reads."""
    for each in deployments(manifests):
        pod = each["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
    for each in manifests:
        if each["kind"] == "ServiceAccount":
            assert each["automountServiceAccountToken"] is False


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
        used = set()
        for container in (*pod.get("initContainers", ()), server_container(each)):
            mounts = container["volumeMounts"]
            assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
            used |= {mount["name"] for mount in mounts}
        assert sorted(volumes) == sorted(used)


def test_selectors_meet_their_own_pods_and_no_others(manifests: list[Manifest]) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in deployments(manifests)
    }

    def met(selector: dict[str, str]) -> list[str]:
        return [name for name, labels in pods.items() if selector.items() <= labels.items()]

    for each in manifests:
        name = each["metadata"]["name"]
        if each["kind"] == "Deployment":
            assert met(each["spec"]["selector"]["matchLabels"]) == [name]
        elif each["kind"] == "Service":
            # The admin API has a separate Service for the server's pods.
            assert met(each["spec"]["selector"]) == [name.removesuffix("-admin")]


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
        [service] = [each for each in rendered if each["kind"] == "Service"]
        spec = service["spec"]["ports"]
        return [(port["name"], port["port"], port.get("appProtocol")) for port in spec]

    http = ("http", 8000, None)
    assert ports({}) == [http]
    assert ports({"server": {"grpcPort": 9100}}) == [http, ("grpc", 9000, "kubernetes.io/h2c")]


def test_the_monitor_scrapes_the_api_and_not_the_dashboard(helm: Helm) -> None:
    rendered = objects(
        helm.render(
            {"dashboard": {"enabled": True}, "metrics": {"serviceMonitor": {"enabled": True}}}
        )
    )
    [monitor] = [each for each in rendered if each["kind"] == "ServiceMonitor"]
    selector = monitor["spec"]["selector"]["matchLabels"]
    scraped = [
        each
        for each in rendered
        if each["kind"] == "Service" and selector.items() <= each["metadata"]["labels"].items()
    ]
    assert scraped == [component(rendered, "Service", "server")]
    ports = {port["name"] for port in scraped[0]["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


def test_the_dashboard_looks_at_the_api_service(helm: Helm) -> None:
    rendered = objects(helm.render({"dashboard": {"enabled": True}, "service": {"port": 8080}}))
    api = component(rendered, "Service", "server")["metadata"]["name"]
    dashboard = server_container(component(rendered, "Deployment", "dashboard"))
    assert f"http://{api}:8080" in dashboard["args"]


def test_engines_divide_the_gpus_of_a_pod(helm: Helm) -> None:
    for count, engines, each in [(0, 2, 0), (2, 2, 1), (8, 4, 2)]:
        values = {"gpu": {"count": count}, "dataParallelSize": engines, "apiWorkers": 3}
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
        rendered = objects(helm.render({"gpu": {"count": count}}))
        container = server_container(component(rendered, "Deployment", "server"))
        assert container["args"][container["args"].index("--device") + 1] == device
        flag = "--tensor-parallel-size"
        assert (flag in container["args"]) == (count > 1)
        if count > 1:
            assert container["args"][container["args"].index(flag) + 1] == str(count)
        assert container["resources"]["limits"].get("nvidia.com/gpu", 0) == count
        assert container["resources"]["limits"]["memory"] == "4Gi"


def test_keys_come_from_the_secret_alone(helm: Helm) -> None:
    rendered = objects(helm.render({"auth": {"existingSecret": "keys", "secretKey": "k"}}))
    container = server_container(component(rendered, "Deployment", "server"))
    assert container["env"] == [
        {"name": "QUIRE_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}
    ]
    assert not [each for each in rendered if each["kind"] == "Secret"]


def test_the_store_s_url_and_the_signing_key_come_from_secrets(helm: Helm) -> None:
    given = {"store": {"existingSecret": "db"}, "signing": {"existingSecret": "seal"}}
    container = server_container(component(objects(helm.render(given)), "Deployment", "server"))
    assert {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"]} == {
        "QUIRE_STORE_URL": {"name": "db", "key": "url"},
        "QUIRE_SIGNING_KEY": {"name": "seal", "key": "signing-key"},
    }


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


def test_pods_spread_by_their_own_labels_by_default(helm: Helm) -> None:
    base = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    other = {"matchLabels": {"app": "other"}}
    rendered = objects(
        helm.render({"topologySpreadConstraints": [base, base | {"labelSelector": other}]})
    )
    spec = component(rendered, "Deployment", "server")["spec"]
    [first, second] = spec["template"]["spec"]["topologySpreadConstraints"]
    assert first["labelSelector"] == spec["selector"]
    assert second["labelSelector"] == other
