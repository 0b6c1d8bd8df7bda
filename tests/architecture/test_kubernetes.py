"""The manifests for Kubernetes: their fields exist, and the program accepts the commands that they start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.architecture import deployments, sources

CLUSTER = "docs/how-to/try-a-cluster.md"
PAGE = "docs/how-to/run-on-compose-and-kubernetes.md"

# The fields of the API in the versions named there, as far as these manifests use them: a mapping of fields, a list
# of one form, or the type of a value. A text key that ends in `*` matches any name.
NAMED = {"name": str}
HTTP_PROBE = {
    "httpGet": {"path": str, "port": str, "httpHeaders": [{"name": str, "value": str}]},
    "failureThreshold": int,
    "periodSeconds": int,
    "timeoutSeconds": int,
}
CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "envFrom": [{"configMapRef": NAMED}],
    "env": [{"name": str, "value": str, "valueFrom": {"secretKeyRef": {"name": str, "key": str}}}],
    "ports": [{"name": str, "containerPort": int}],
    "startupProbe": HTTP_PROBE,
    "livenessProbe": HTTP_PROBE,
    "readinessProbe": HTTP_PROBE,
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"memory": str}},
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop": [str]},
    },
    "volumeMounts": [{"name": str, "mountPath": str, "subPath": str}],
}
POD = {
    "metadata": {"labels": {"*": str}},
    "spec": {
        "terminationGracePeriodSeconds": int,
        "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "fsGroup": int},
        "containers": [CONTAINER],
        "volumes": [{"name": str, "emptyDir": {}, "configMap": NAMED}],
    },
}
HEAD = {"apiVersion": str, "kind": str, "metadata": NAMED}
WORKLOAD = {"replicas": int, "selector": {"matchLabels": {"*": str}}, "template": POD}
CLAIM = {"accessModes": [str], "resources": {"requests": {"storage": str}}}
KINDS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("v1", "ConfigMap"): HEAD | {"data": {"*": str}},
    ("v1", "Service"): HEAD
    | {
        "spec": {
            "selector": {"*": str},
            "sessionAffinity": str,
            "ports": [{"name": str, "port": int, "targetPort": str}],
        }
    },
    ("apps/v1", "Deployment"): HEAD | {"spec": WORKLOAD},
    ("apps/v1", "StatefulSet"): HEAD
    | {
        "spec": WORKLOAD
        | {
            "serviceName": str,
            "podManagementPolicy": str,
            "volumeClaimTemplates": [{"metadata": NAMED, "spec": CLAIM}],
        }
    },
}


def manifests() -> list[dict[str, Any]]:
    """Return all manifests of the page."""
    return [one for block in deployments.blocks(PAGE, "yaml") for one in yaml.safe_load_all(block)]


def flaws(found: Any, form: Any, place: str = "") -> Iterator[str]:
    """Yield the places where a manifest differs from its form."""
    if isinstance(form, Mapping):
        if not isinstance(found, Mapping):
            yield place
            return
        for name, value in found.items():
            known = form.get(name, form.get("*"))
            if known is None:
                yield f"{place}.{name}"
            else:
                yield from flaws(value, known, f"{place}.{name}")
    elif isinstance(form, list):
        items = found if isinstance(found, list) else [None]
        for number, item in enumerate(items):
            yield from flaws(item, form[0], f"{place}[{number}]")
    elif type(found) is not form:
        yield place


def workloads() -> dict[str, dict[str, Any]]:
    """Return the pod specifications by the name of their workload."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in manifests()
        if "template" in one.get("spec", {})
    }


def test_manifests_have_the_fields_of_their_kind() -> None:
    """Every kind is known, and every field exists and has its type."""
    assert [flaw for one in manifests() for flaw in flaws(one, KINDS[one["apiVersion"], one["kind"]])] == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("readinessProbe", "readyProbe"),
        ("replicas: 2", "replicas: two"),
        ("drop: [ALL]", "drop: ALL"),
        ("subPath", "path"),
    ],
)
def test_a_wrong_manifest_is_seen(right: str, wrong: str) -> None:
    """The check above finds an unknown field, a wrong type and a missing list."""
    blocks = "---\n".join(deployments.blocks(PAGE, "yaml"))

    assert right in blocks
    documents = yaml.safe_load_all(blocks.replace(right, wrong))
    assert [flaw for one in documents for flaw in flaws(one, KINDS[one["apiVersion"], one["kind"]])]


def test_the_program_accepts_the_command_lines_of_the_pods() -> None:
    """The program accepts the command lines and settings of the pods, and their probes ask paths that it answers."""
    shared = {one["metadata"]["name"]: one["data"] for one in manifests() if one["kind"] == "ConfigMap"}
    for name, pod in workloads().items():
        (container,) = pod["containers"]
        given = {
            key: value
            for source in container["envFrom"]
            for key, value in shared[source["configMapRef"]["name"]].items()
        }
        secret = {item["name"] for item in container["env"] if "valueFrom" in item}
        given |= {item["name"]: item.get("value", "postgresql://u:p@h/d") for item in container["env"]}
        probed = {probe["httpGet"]["path"] for key, probe in container.items() if key.endswith("Probe")}

        assert deployments.refused_command(container["command"]) is None, name
        assert deployments.unknown_variables(given) == set(), name
        assert deployments.refused_settings(given) == [], name
        assert probed <= deployments.PROBES
        assert {key for key in given if re.search(r"TOKEN|SECRET_|KEY|STORE_URL", key)} == secret


def test_volumes_and_names_fit() -> None:
    """Every mounted volume is declared, selectors match their pods, and no pod runs as root."""
    by_name = {one["metadata"]["name"]: one for one in manifests() if one["kind"] in ("Deployment", "StatefulSet")}
    for name, one in by_name.items():
        spec, pod = one["spec"], one["spec"]["template"]
        declared = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        declared |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
        (container,) = pod["spec"]["containers"]

        assert {mount["name"] for mount in container["volumeMounts"]} == declared
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert "memory" in container["resources"]["limits"]
        assert container["image"].endswith("@sha256:DIGEST"), name


def test_ports_and_hosts_fit() -> None:
    """The Service leads to the port that the command opens; probes use that port and a host that the service allows."""
    (container,) = workloads()["control-room"]["containers"]
    (service,) = [one["spec"] for one in manifests() if one["kind"] == "Service"]
    (opened,), (led,) = container["ports"], service["ports"]
    hosts = next(item["value"] for item in container["env"] if item["name"] == "CONTROL_ROOM_ALLOWED_HOSTS").split(",")
    probes = [probe["httpGet"] for key, probe in container.items() if key.endswith("Probe")]

    assert container["command"][-2:] == ["--port", str(opened["containerPort"])]
    assert {led["targetPort"], *(probe["port"] for probe in probes)} == {opened["name"]}
    assert {header["value"] for probe in probes for header in probe["httpHeaders"]} <= set(hosts)
    assert service["selector"].items() <= {"app": "control-room"}.items()
    assert "ports" not in workloads()["control-room-worker"]["containers"][0]


def test_every_written_path_is_on_a_volume() -> None:
    """The image's project and home, and temporary files, are on volumes of each pod."""
    image = (sources.ROOT / "Dockerfile").read_text(encoding="utf-8")
    project, home = (re.findall(rf"\b{name}=(\S+)", image)[0] for name in ("CONTROL_ROOM_PROJECT", "HOME"))
    for pod in workloads().values():
        mounted = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}

        assert {project, home, "/tmp"} <= mounted.keys()
        assert mounted[f"{project}/.control-room/agents.json"]["subPath"] == "agents.json"


def test_commands_of_the_cluster_are_taken() -> None:
    """The program accepts each of its command lines on the page about trying a cluster."""
    lines = [line.split() for block in deployments.blocks(CLUSTER, "sh") for line in block.splitlines()]
    called = [words for words in lines if words[:1] == ["control-room"]]

    assert called
    assert [refused for words in called if (refused := deployments.refused_command(words))] == []
