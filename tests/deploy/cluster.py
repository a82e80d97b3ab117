"""A Kubernetes API that Helm can install into: it knows the kinds of the chart, has nothing, and keeps what it is sent.

No object is checked here, and no pod starts: a test validates what came against the schemas of Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from tests.lab.harness.loopback import LoopbackServer

KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "v1": {
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
    },
    "apps/v1": {"deployments": "Deployment"},
    "autoscaling/v2": {"horizontalpodautoscalers": "HorizontalPodAutoscaler"},
    "monitoring.coreos.com/v1": {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
}
"""The resources of each version of an API, and their kinds."""
_VERBS: Final = ("create", "delete", "get", "list", "patch", "update")
_PROTOBUF: Final = b"k8s\x00"
"""How Kubernetes' binary form begins, in which Helm sends its own record of a release."""


class Cluster(LoopbackServer):
    """The API; a context manager.

    Args:
        objects: what is in the cluster already, by path, such as `/api/v1/namespaces/default/secrets/a`.
    """

    def __init__(self, objects: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.there = objects or {}
        self.created: list[Mapping[str, Any]] = []
        """Objects that were created, in their order."""
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers discovery, finds what is there, and echoes what is created."""

    owner: Cluster
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer what Helm asks for."""
        path = self.path.partition("?")[0]
        found = _discovered(path) or self.owner.there.get(path)
        if found is None and path.endswith("/secrets"):
            found = {"kind": "SecretList", "apiVersion": "v1", "items": []}
        if found is None:
            found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        self._send(404 if "NotFound" == found.get("reason") else 200, json.dumps(found).encode())

    def do_POST(self) -> None:
        """Keep an object."""
        self._take()

    def do_PUT(self) -> None:
        """Take a change of Helm's own record."""
        self._take()

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if body.startswith(_PROTOBUF):
            self._send(201, body, "application/vnd.kubernetes.protobuf")
            return
        self.owner.created.append(json.loads(body))
        self._send(201, body)

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _discovered(path: str) -> dict[str, Any] | None:
    """Return what the API says of itself, as discovery asks for it."""
    if "/version" == path:
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
    if "/api" == path:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if "/apis" == path:
        groups = [_group(version) for version in KINDS if "/" in version]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version = path.removeprefix("/apis/" if path.startswith("/apis/") else "/api/")
    if version not in KINDS:
        return None
    resources = [
        {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": _VERBS}
        for name, kind in KINDS[version].items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _group(version: str) -> dict[str, Any]:
    name, _, number = version.partition("/")
    this = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [this], "preferredVersion": this}
