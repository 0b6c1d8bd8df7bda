"""docker-compose.yml and its Dockerfile are valid, closed to the network, and complete in their declarations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.architecture import deployments, sources

if TYPE_CHECKING:
    from compose_spec import PyCompose

COMPOSE = (sources.ROOT / "docker-compose.yml").read_text(encoding="utf-8")
DOCKERFILE = (sources.ROOT / "Dockerfile").read_text(encoding="utf-8")
TOKEN = {"CONTROL_ROOM_API_TOKEN": "secret"}


def test_compose_file_is_valid() -> None:
    """The file is accepted by the compose specification, with its variables filled in."""
    composed = _read(_filled_in(COMPOSE, TOKEN))

    assert set(composed.service_names()) == {"control-room", "service-1", "service-2", "worker", "temporal", "database"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ports:", "portz:"),
        ("pids_limit: 2048", "pids_limit: many"),
        ("init: true", "init: 7"),
        ("127.0.0.1:8000:8000", "127.0.0.1:eight:8000"),
    ],
)
def test_a_wrong_compose_file_is_seen(right: str, wrong: str) -> None:
    """The check above refuses an unknown field, a wrong type and a wrong port."""
    text = _filled_in(COMPOSE, TOKEN)

    assert right in text
    with pytest.raises(ValueError, match=r".+"):
        _read(text.replace(right, wrong))


def test_compose_refuses_to_start_without_a_token() -> None:
    """Without CONTROL_ROOM_API_TOKEN Compose refuses to start."""
    with pytest.raises(LookupError, match="CONTROL_ROOM_API_TOKEN"):
        _filled_in(COMPOSE, {})


def test_every_volume_and_service_is_declared() -> None:
    """Named volumes are declared, declared ones are used, and dependencies name services."""
    document = _document()
    services = document["services"].values()
    mounted = {volume.split(":")[0] for service in services for volume in service.get("volumes", [])}
    named = {source for source in mounted if not source.startswith((".", "/", "~"))}

    assert named == set(document.get("volumes", {}))
    assert {name for service in services for name in service.get("depends_on", [])} <= set(document["services"])


def test_service_is_published_on_loopback_only() -> None:
    """Every published port is bound to 127.0.0.1 of the host."""
    ports = [port for service in _document()["services"].values() for port in service.get("ports", [])]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_service_has_no_more_rights_than_it_needs() -> None:
    """The service runs as a user other than root, without capabilities, on a read-only system, with data on volumes."""
    service = _document()["services"]["control-room"]

    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["volumes"] == ["project:/project", "home:/var/lib/control-room"]
    assert not service.get("privileged")


def test_service_is_bounded() -> None:
    """Processes, memory with swap, descriptors, temporary files and logs have limits, with room for eight agents."""
    service = _document()["services"]["control-room"]

    assert 512 <= service["pids_limit"] <= 8192
    assert service["mem_limit"] == service["memswap_limit"] == "8g"
    assert service["ulimits"] == {"nofile": {"soft": 65536, "hard": 65536}, "core": 0}
    assert all(re.search(r":size=\d+m$", place) for place in service["tmpfs"])
    assert {"max-size", "max-file"} <= service["logging"]["options"].keys()


def test_the_profile_scale_is_started_by_name_only() -> None:
    """Without the profile there is one service; with it two services, three workers and what they need."""
    services = _document()["services"]
    scaled = {name: service for name, service in services.items() if service.get("profiles") == ["scale"]}

    assert set(services) - set(scaled) == {"control-room"}
    assert len([name for name in scaled if name.startswith("service-")]) == 2
    assert scaled["worker"]["deploy"]["replicas"] == 3
    assert scaled["worker"]["ports"] == []


def test_the_program_accepts_the_command_lines_of_the_profile() -> None:
    """The program accepts the command lines and settings of the profile, and the file contains no secrets."""
    filled = yaml.safe_load(_filled_in(COMPOSE, TOKEN | {"CONTROL_ROOM_DATABASE_PASSWORD": "from-outside"}))
    for name in ("service-1", "service-2", "worker"):
        service = filled["services"][name]
        command = service.get("command", ["control-room", "serve"])

        assert deployments.refused_command(command) is None
        assert deployments.unknown_variables(service["environment"]) == set()
        assert deployments.refused_settings(service["environment"]) == []
        assert ":from-outside@" in service["environment"]["CONTROL_ROOM_STORE_URL"]
    assert filled["services"]["database"]["environment"]["POSTGRES_PASSWORD"] == "from-outside"
    assert filled["services"]["temporal"]["environment"]["POSTGRES_PWD"] == "from-outside"


def test_published_and_watched_ports_are_those_that_are_opened() -> None:
    """The port of the image is the one that Compose publishes and checks, and data directories are on volumes."""
    (opened,) = re.findall(r"CONTROL_ROOM_PORT=(\d+)", DOCKERFILE)
    for name, service in _document()["services"].items():
        command = service.get("command", [])
        data = command[command.index("--data-directory") + 1] if "--data-directory" in command else "/project"
        if "build" in service:
            assert any(data.startswith(volume.partition(":")[2]) for volume in service["volumes"]), name
            assert {port.rpartition(":")[2] for port in service["ports"]} <= {opened}, name
            assert f":{opened}/healthz" in service["healthcheck"].get("test", [f":{opened}/healthz"])[-1], name
            assert "--port" not in command


def test_members_of_the_profile_are_bounded_and_watched() -> None:
    """Each service has a version and limits of its resources, and all but the worker have a health check."""
    for name, service in _document()["services"].items():
        assert service["pids_limit"], name
        assert service["mem_limit"] == service["memswap_limit"], name
        assert service["ulimits"]["nofile"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert (name == "worker") is bool(service["healthcheck"].get("disable")), name
        assert "build" in service or re.search(r":\d+\.\d+[\w.-]*$", service["image"]), name


def test_agents_have_a_home() -> None:
    """HOME is a volume that belongs to the service's user, so that logins and caches of agents can be written."""
    home = re.findall(r"^(?:ENV| +) *HOME=(\S+)", DOCKERFILE, flags=re.MULTILINE)

    assert home == ["/var/lib/control-room"]
    assert f"home:{home[0]}" in _document()["services"]["control-room"]["volumes"]
    assert re.search(rf"install -d -o control-room -g control-room -m 0700 .*{home[0]}", DOCKERFILE)
    assert home[0] in DOCKERFILE[DOCKERFILE.index("VOLUME ") :]


def test_base_images_are_named_by_digest() -> None:
    """Every stage begins with one image of a version and a digest, so that later builds begin with the same image."""
    images = set(re.findall(r"^FROM (\S+)", DOCKERFILE, flags=re.MULTILINE))

    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", images.pop())


def test_service_is_watched() -> None:
    """Compose and the image check /healthz, and Compose allows enough time for a graceful stop."""
    service = _document()["services"]["control-room"]

    assert "/healthz" in service["healthcheck"]["test"][-1]
    assert "/healthz" in DOCKERFILE
    assert int(service["stop_grace_period"].rstrip("s")) >= 20


def test_image_drops_root_before_it_serves() -> None:
    """The last stage of the image switches to a user other than root before its command, and installs by hash."""
    last_stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    users = re.findall(r"^USER (\S+)$", last_stage, flags=re.MULTILINE)

    assert users
    assert "root" not in users
    assert last_stage.index("\nUSER ") < last_stage.index("\nCMD ")
    assert all("--require-hashes" in line for line in DOCKERFILE.splitlines() if " -r " in line)


def test_the_image_copies_exactly_the_allowed_paths() -> None:
    """The image copies exactly the paths that .dockerignore allows, and each of them exists."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, flags=re.MULTILINE)
    paths = {path for line in copied for path in line.split()}
    allowed = set(
        re.findall(r"^!(\S+)$", (sources.ROOT / ".dockerignore").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )

    assert paths == allowed
    assert {path for path in paths if not (sources.ROOT / path).exists()} == set()


def _read(text: str) -> PyCompose:
    from compose_spec import PyCompose

    # The specification is checked without the merge keys of YAML, which Compose resolves first.
    return PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(text)))


def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(_filled_in(COMPOSE, TOKEN))
    return document


def _filled_in(text: str, environment: Mapping[str, str]) -> str:
    # The three forms of variables in the file: ${NAME}, ${NAME:-default}, ${NAME:?what to do}.
    def value(match: re.Match[str]) -> str:
        name, operator, rest = match["name"], match["operator"], match["rest"]
        if environment.get(name):
            return environment[name]
        if operator == ":-":
            return rest
        raise LookupError(f"{name}: {rest}")

    return re.sub(r"\$\{(?P<name>\w+)(?:(?P<operator>:[-?])(?P<rest>[^}]*))?\}", value, text)
