"""The configurations for other gateways: one shape, the same values as the one that runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.envoy.through import CONFIGURATION, configuration, envoy_binary
from tests.real.needing import need

FOLDER = CONFIGURATION.parent
PORT = 7781


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


def own_filter() -> dict[str, Any]:
    """Return the filter of the configuration that runs."""
    listener = yaml.safe_load(CONFIGURATION.read_text("utf-8"))["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    found: dict[str, Any] = manager["http_filters"][0]["typed_config"]
    return found


def refusal(patches: list[dict[str, Any]], folder: Path) -> str:
    """Apply Istio's patches to a plain Envoy's configuration; return what the real one says against it, if anything."""
    whole = configuration(PORT, PORT)
    listener = whole["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    (host,) = manager["route_config"]["virtual_hosts"]
    del listener["per_connection_buffer_limit_bytes"], host["request_body_buffer_limit"], manager["http_filters"][0]
    for patch in patches:
        value = patch["patch"]["value"]
        if patch["applyTo"] == "HTTP_FILTER":
            manager["http_filters"].insert(0, value)
            cluster = value["typed_config"]["grpc_service"]["envoy_grpc"]["cluster_name"]
            whole["static_resources"]["clusters"][0]["name"] = cluster
        else:
            {"LISTENER": listener, "VIRTUAL_HOST": host}[patch["applyTo"]].update(value)
    file = folder / "envoy.json"
    file.write_text(json.dumps(whole))
    command = [str(need(envoy_binary)), "--mode", "validate", "--disable-hot-restart", "--config-path", str(file)]
    validated = subprocess.run(command, capture_output=True, text=True, check=False)
    return validated.stderr if validated.returncode else ""


def test_istio_patches_the_same_filter(tmp_path: Path) -> None:
    """Its values are those of the configuration that runs, and Envoy accepts all of its patches."""
    patches = documents("istio.yaml")[0]["spec"]["configPatches"]
    patch = patches[0]["patch"]["value"]
    same = ("failure_mode_allow", "message_timeout", "max_message_timeout", "processing_mode", "allow_mode_override")

    assert [own_filter()[name] for name in same] == [patch["typed_config"][name] for name in same]
    assert "" == refusal(patches, tmp_path)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_envoy_refuses_a_patch_with_a_member_that_it_does_not_know(tmp_path: Path, index: int) -> None:
    """So what it accepts is spelt as it reads it."""
    patches = documents("istio.yaml")[0]["spec"]["configPatches"]
    value = patches[index]["patch"]["value"]
    (value["typed_config"] if index == 0 else value)["buffer_limit_of_bytes"] = 1

    assert "buffer_limit_of_bytes" in refusal(patches, tmp_path)


def test_every_gateway_buffers_requests_streams_responses_and_fails_open() -> None:
    """What the sidecar needs is asked for in each gateway's own words."""
    envoy_gateway = documents("envoy-gateway.yaml")[0]["spec"]["extProc"][0]
    agentgateway = documents("agentgateway.yaml")[0]["spec"]["traffic"]["extProc"]
    options = agentgateway["processingOptions"]

    modes = {"request": {"body": "Buffered"}, "response": {"body": "Streamed"}, "allowModeOverride": True}
    assert modes == envoy_gateway["processingMode"]
    assert options["allowModeOverride"] is True
    assert envoy_gateway["failOpen"] is True
    assert ("Buffered", "Streamed") == (options["requestBodyMode"], options["responseBodyMode"])
    assert "FailOpen" == agentgateway["failureMode"]
    assert {PORT} == {envoy_gateway["backendRefs"][0]["port"], agentgateway["backendRef"]["port"]}


def test_the_largest_body_fits_everywhere() -> None:
    """Where a gateway buffers less than the sidecar takes, prompts get 413."""
    patches = documents("istio.yaml")[0]["spec"]["configPatches"]
    istio = {key: value for patch in patches[1:] for key, value in patch["patch"]["value"].items()}

    assert {"per_connection_buffer_limit_bytes": 65 << 20, "request_body_buffer_limit": 64 << 20} == istio
    (traffic,) = (each for each in documents("envoy-gateway.yaml") if "ClientTrafficPolicy" == each["kind"])
    assert "65Mi" == traffic["spec"]["connection"]["bufferLimit"]
