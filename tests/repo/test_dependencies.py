"""What the code imports is declared, what is declared is pinned, and what is generated can run on what is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = (ROOT / ".ci" / "requirements.txt").read_text(encoding="utf-8")


def client() -> dict[str, Requirement]:
    """Return what an installed client needs, by name."""
    return _named(PROJECT["project"]["dependencies"])


def runtime() -> dict[str, Requirement]:
    """Return what an installed server needs, by name."""
    return client() | _named(PROJECT["project"]["optional-dependencies"]["server"])


def extras(*only: str) -> dict[str, Requirement]:
    """Return what a user may add to the server, by name: of these extras, or of all."""
    more = PROJECT["project"]["optional-dependencies"].items()
    return _named(
        [entry for extra, entries in more if extra in only or not only for entry in entries if extra != "server"]
    )


def apart() -> dict[str, Requirement]:
    """Return what is tested in environments of its own, by name: frameworks with versions of their own, and Helm."""
    folders = (ROOT / "tests" / "integrations" / "requirements", ROOT / "tests" / "deploy" / "requirements")
    files = sorted(file for folder in folders for file in folder.glob("*.in"))
    return _named(line for file in files for line in file.read_text(encoding="utf-8").splitlines())


def _named(entries: Iterable[str]) -> dict[str, Requirement]:
    return {canonicalize_name(r.name): r for r in map(Requirement, entries)}


def development() -> dict[str, Requirement]:
    """Return what only the work on it needs, by name."""
    groups = PROJECT["dependency-groups"].values()
    return _named(entry for group in groups for entry in group if isinstance(entry, str))


def least(requirement: Requirement) -> Version:
    """Return the lowest version that a requirement admits."""
    return max(Version(part.version) for part in requirement.specifier if part.operator in {">=", "=="})


def modules(folder: str) -> Iterator[tuple[str, str]]:
    """Yield each module imported under a folder, and one file that does it."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((alias.name, path.relative_to(ROOT).as_posix()) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module, path.relative_to(ROOT).as_posix()


def undeclared(folder: str, declared: set[str]) -> set[tuple[str, str]]:
    """Return the imports under a folder whose distribution is not declared, with a file that does each."""
    ours = {"dashboards", "prompt_sidecar", "tests", "__future__"} | sys.stdlib_module_names
    distributions = packages_distributions()
    found = set()
    for module, path in modules(folder):
        top = module.split(".")[0]
        # Names that several distributions share: the one that holds the module is meant.
        shared = {"google": "googleapis-common-protos" if module.startswith("google.rpc") else "protobuf"}
        # Not installed here, and named otherwise than their distribution.
        shared |= {"agents": "openai-agents", "pydantic_ai": "pydantic-ai-slim", "strands": "strands-agents"}
        shared |= {"agent_framework": "agent-framework-core", "llama_index": "llama-index-core"}
        shared |= {name: name.replace("_", "-") for name in ("autogen_agentchat", "autogen_core", "autogen_ext")}
        owners = {shared[top]} if top in shared else {canonicalize_name(n) for n in distributions.get(top, [top])}
        if top not in ours and not owners & declared:
            found.add((module, path))
    return found


def test_the_sidecar_imports_only_what_it_declares() -> None:
    """A dependency that comes with another one today may be gone tomorrow."""
    assert set() == undeclared("sidecar/prompt_sidecar", set(runtime()) | set(extras()))


def test_the_client_imports_only_what_it_declares() -> None:
    """An agent that installs the client gets nothing of the server's."""
    assert set() == undeclared("sidecar/prompt_sidecar/client", set(client()))


def test_the_tests_import_only_what_is_declared() -> None:
    """As for the sidecar, with the development groups added."""
    assert set() == undeclared("tests", set(runtime()) | set(development()) | set(extras()) | set(apart()))


def test_the_dashboards_import_only_what_is_declared() -> None:
    """As for the tests."""
    assert set() == undeclared("dashboards", set(runtime()) | set(development()))


def test_extras_are_what_the_checks_meet() -> None:
    """An extra that neither the development groups nor an environment of its own installs is tried by no test."""
    here = {name: requirement for name, requirement in development().items() if name in extras()}
    pins = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("integrations/requirements/*.txt")
    )
    there = {name: pin for name, pin in re.findall(r"(?m)^([\w.-]+)==(\S+)", pins) if name in extras()}

    assert set(extras()) == set(here) | set(there)
    assert {} == {name: made for name, made in here.items() if name not in there and made != extras()[name]}
    assert [] == [name for name, pin in there.items() if not extras()[name].specifier.contains(pin)]


def test_every_requirement_has_a_lower_bound() -> None:
    """Without one, an old release that never worked satisfies an installer."""
    asked = [*client().items(), *runtime().items()]

    assert [] == [name for name, r in asked if not any(p.operator == ">=" for p in r.specifier)]


def test_every_requirement_is_pinned_at_a_version_it_admits() -> None:
    """`make pins` was run after pyproject.toml was last changed."""
    pinned: dict[str, Version] = {
        canonicalize_name(n): Version(v) for n, v in re.findall(r"(?m)^([\w.-]+)==(\S+)", PINS)
    }
    asked = runtime() | development()

    assert [] == [name for name, r in asked.items() if name not in pinned or not r.specifier.contains(pinned[name])]


def test_every_pin_has_a_hash() -> None:
    """An installer in its hash-checking mode takes all of them, and what a registry serves cannot change unseen."""
    pins = re.split(r"(?m)^(?=[\w.-]+==)", PINS)[1:]

    assert [] == [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin]


def test_the_runtime_is_as_new_as_the_generator_of_the_stubs() -> None:
    """The stubs refuse an older one when they are imported."""
    stubs = ROOT / "sidecar" / "prompt_sidecar" / "v1"
    service = (stubs / "service_pb2_grpc.py").read_text(encoding="utf-8")
    messages = (stubs / "service_pb2.py").read_text(encoding="utf-8")
    grpcio = re.search(r"GRPC_GENERATED_VERSION = '(.+)'", service)
    protobuf = re.search(r"Protobuf Python Version: (.+)", messages)

    assert grpcio
    assert protobuf
    assert Version(grpcio[1]) <= least(runtime()["grpcio"])
    assert Version(protobuf[1]) <= least(runtime()["protobuf"])


def test_every_proto_has_its_stubs_and_every_stub_its_proto() -> None:
    """A stub whose proto is gone would be shipped for ever."""
    protos = {path.stem for path in (ROOT / "protos" / "prompt_sidecar" / "v1").glob("*.proto")}
    suffixes = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
    expected = {proto + suffix for proto in protos for suffix in suffixes}

    assert expected == {
        path.name for path in (ROOT / "sidecar" / "prompt_sidecar" / "v1").glob("*_pb2*.py*") if path.is_file()
    }


def test_the_messages_of_envoy_have_their_stubs() -> None:
    """They have no service of ours, so there are messages and types only."""
    protos = {path.stem for path in (ROOT / "protos" / "prompt_sidecar" / "envoy" / "v1").glob("*.proto")}
    stubs = (ROOT / "sidecar" / "prompt_sidecar" / "doors" / "envoy" / "v1").glob("*_pb2*.py*")

    assert {proto + suffix for proto in protos for suffix in ("_pb2.py", "_pb2.pyi")} == {path.name for path in stubs}


def test_the_demo_has_what_it_needs_at_the_pinned_versions() -> None:
    """`make demo` installs the server and the group `demo`, in the versions that the tests meet, and little more."""
    demo = (ROOT / ".ci" / "demo.txt").read_text(encoding="utf-8")
    pins, all_pins = (dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", text)) for text in (demo, PINS))
    asked = {canonicalize_name(name) for name in runtime()} | {
        canonicalize_name(Requirement(entry).name)
        for entry in PROJECT["dependency-groups"]["demo"]
        if isinstance(entry, str)
    }

    assert asked <= {canonicalize_name(name) for name in pins}
    assert pins.items() <= all_pins.items()
    assert [] == [pin for pin in re.split(r"(?m)^(?=[\w.-]+==)", demo)[1:] if "--hash=sha256:" not in pin]
    assert 2 * len(pins) < len(all_pins)


def test_grpc_has_an_upper_bound_where_its_private_names_are_used() -> None:
    """The server's; a client, which shares its interpreter with others and uses none of them, takes any later one."""
    assert "<" in {part.operator for part in runtime()["grpcio"].specifier}
    assert {">="} == {part.operator for part in client()["grpcio"].specifier}
