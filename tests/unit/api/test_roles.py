"""The table of roles: every address of the service has a row, and every row an address."""

from __future__ import annotations

import click
import pytest

from app.api import callers, roles, routes
from app.cli import keys as key_commands
from app.domain.access import Role, Scope
from app.services import keys

API = routes.create()


def addresses() -> set[str]:
    """Return method and path of every route."""
    found = [route for route in API.routes if hasattr(route, "path")]
    return {
        f"{method} {route.path}"
        for route in found
        for method in (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}
    }


def test_every_address_has_a_row() -> None:
    """Every route is in the table of `app/api/roles.py`, and every row of the table is a route."""
    assert addresses() - roles.NEEDS.keys() == set()
    assert roles.NEEDS.keys() - addresses() == set()


def test_only_open_paths_need_no_role() -> None:
    """The table opens exactly the paths that the guard lets pass, besides those with the open prefix."""
    free = {name.partition(" ")[2] for name, need in roles.NEEDS.items() if need.role is None}

    assert {path for path in free if not path.startswith(callers.OPEN_PREFIX)} == callers.OPEN_PATHS


def test_viewers_change_nothing() -> None:
    """Every address for viewers only reads; a few of them take a body."""
    asking = {"POST /api/preflight", "POST /api/recipes/validate", "POST /api/route", "POST /api/tickets"}
    asking |= {"POST /api/runs/{run_id}/preview"}
    seen = {name for name, need in roles.NEEDS.items() if need.role is Role.VIEWER}

    assert {name for name in seen if not name.startswith("GET ")} == asking


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/api/runs/bulk", Role.VIEWER),
        ("POST", "/api/runs/bulk", Role.RUNNER),
        ("HEAD", "/api/audit", Role.ADMIN),
        ("POST", "/api/gates/a.b", Role.APPROVER),
        ("GET", "/api/runs/r1/logs/a.log/stream", Role.VIEWER),
    ],
)
def test_a_request_finds_its_row(method: str, path: str, role: Role) -> None:
    """Method and path lead to the row of the route that would answer; an unknown address has no row."""
    table = roles.Table(API.routes)
    found = table.needed(method, path)

    assert found is not None
    assert found[0].role is role
    assert table.needed(method, "/api/nowhere") is None


def test_roles_include_those_before() -> None:
    """An admin may do what an approver may, and a viewer may only view; the command names the same roles."""
    assert [role.includes(Role.APPROVER) for role in Role] == [False, False, True, True]
    assert tuple(Role) == key_commands.ROLES


def test_the_command_knows_the_longest_grace() -> None:
    """The command refuses a grace period that the service would refuse, and takes the longest one."""
    assert key_commands.grace("7d") == keys.LONGEST_GRACE_SECONDS
    with pytest.raises(click.BadParameter, match="at most 7d"):
        key_commands.grace("7d1s")


def test_a_scope_takes_one_value_of_each_label() -> None:
    """Values of one label are alternatives, several labels are all required, and recipes narrow the scope further."""
    scope = Scope(recipes=("a", "b"), labels=(("book", "one"), ("book", "two"), ("team", "red")))

    assert scope.covers("a", {"book": "two", "team": "red", "other": "x"})
    assert not scope.covers("c", {"book": "two", "team": "red"})
    assert not scope.covers("a", {"book": "three", "team": "red"})
    assert not scope.covers("a", {"book": "one"})
    assert not Scope().is_limited
