"""Relays each MCP call as one gRPC call: the list of tools, and the results of their calls."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import grpc
from mcp import types

from prompt_sidecar.client.asynchronous.transport import AsyncChannels
from prompt_sidecar.client.errors import ClientError, from_rpc
from prompt_sidecar.client.options import Options, is_header
from prompt_sidecar.client.schema import make, methods
from prompt_sidecar.mcp.options import DEADLINE, McpOptions

RUN_HEADER: Final = "x-prompt-sidecar-run"
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
NO_RUN: Final = (
    f"No run is named. Set PROMPT_SIDECAR_RUN or --run, or over HTTP the header {RUN_HEADER}. Do not call again."
)
UNREACHABLE: Final = "This tool cannot be reached right now. Go on without it, or try again later."


class Relay:
    """Relays to one sidecar. A call's run and credential come from the transport, never from the model."""

    def __init__(self, options: McpOptions) -> None:
        self._options = options
        token = "" if options.listen else options.token
        self._client = Options(options.target, DEADLINE, token=token, tls=options.tls)
        self._channels = AsyncChannels(self._client)

    async def list_tools(self, context: Any, _: Any) -> types.ListToolsResult:
        """Return the sidecar's tools.

        Raises:
            ClientError: the sidecar cannot be reached, or refuses the caller.
        """
        answer = await self._call(context, "ListTools", format="anthropic_messages")
        tools = [
            types.Tool(name=tool["name"], description=tool["description"], input_schema=tool["input_schema"])
            for tool in json.loads(answer.tools_json)
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        """Run a tool; the model gets the sidecar's answer, or why there is none."""
        run_id = self._run_id(context)
        if not run_id:
            return _text_result(NO_RUN, is_error=True)
        try:
            answer = await self._call(
                context,
                "CallTool",
                run_id=run_id,
                name=parameters.name,
                arguments_json=json.dumps(parameters.arguments or {}),
                request_id=secrets.token_hex(8),
            )
        except ClientError as error:
            return _text_result(UNREACHABLE if error.code == "UNAVAILABLE" else str(error), is_error=True)
        except ValueError as error:  # an id of a run that no request can contain
            return _text_result(str(error), is_error=True)
        return _text_result(answer.content, is_error=answer.is_error)

    async def close(self) -> None:
        """Close the connection."""
        await self._channels.close()

    def _run_id(self, context: Any) -> str:
        return self._options.run if context.request is None else str(context.request.headers.get(RUN_HEADER, ""))

    def _metadata(self, context: Any) -> Mapping[str, str]:
        """Return the host's trace, the credential and the run, as headers for the sidecar and its load balancer.

        The trace is the one that MCP's library found in the request (`_meta`), or else that of the HTTP request.
        """
        made = dict(self._client.metadata(self._run_id(context)))
        if context.request is None:
            return made
        given = context.request.headers
        wanted = ("authorization",) if "traceparent" in made else ("authorization", *_TRACE_HEADERS)
        found = {name: given.get(name, "") for name in wanted}
        # A credential that no gRPC header can contain is left out: a sidecar that needs one then refuses the call.
        return made | {name: value for name, value in found.items() if is_header(value)}

    async def _call(self, context: Any, method: str, /, **values: Any) -> Any:
        path, request, response = methods()[method]
        stub: Any = self._channels.current().unary_unary(
            path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        message = make(f"{method}Request", **values)
        try:
            return await stub(message, timeout=DEADLINE, metadata=tuple(self._metadata(context).items()))
        except grpc.RpcError as error:
            raise from_rpc(error) from None


def _text_result(text: str, *, is_error: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)
