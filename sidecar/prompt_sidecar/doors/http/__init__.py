"""The HTTP door: a reverse proxy for providers' APIs, so that an agent sets a base URL and nothing else.

agent ── POST /v1/messages ──► lifecycle.py   the aiohttp server, in a thread with an event loop of its own
                                 ├─ front.py         strangers' pages, preflights, WebSockets for prompts that are
                                 │                   sent to HTTP: answered here
                                 ▼
                               routes.py      which provider, which dialect; what is not known passes through
                                 ├─ passthrough.py   as it came, both ways
                                 ├─ websockets.py    message by message, both ways
                                 ├─ response_sockets.py  prompts on a WebSocket: each is one exchange, whose bytes are
                                 │                   messages (socket_exchanges.py)
                                 ▼
                               exchange.py    one request of the agent and the model's answer to it:
                                 │  prompting.py     in a worker thread: which run, hidden turns put back
                                 │                   (hidden.py), the sidecar's tools added, trimmed
                                 │  upstream.py      sent on, and what the provider refused
                                 │  dialects/        what of the answer is the agent's; calls of the sidecar's
                                 │                   tools are answered here, and the model asked again
                                 ▼
                               the agent      the answer, or its events as they come
"""
