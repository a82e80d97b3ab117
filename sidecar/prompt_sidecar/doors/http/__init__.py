"""The HTTP door: a reverse proxy for providers' APIs, so that an agent sets a base URL and nothing else.

agent ── POST /v1/messages ──► lifecycle.py   the aiohttp server, in a thread with an event loop of its own
                                 ├─ front.py         requests of other sites' web pages, preflights, WebSockets for
                                 │                   prompts that must use HTTP: answered here
                                 ▼
                               routes.py      which provider, which dialect; unknown paths pass through
                                 ├─ passthrough.py   bytes unchanged, both ways
                                 ├─ websockets.py    message by message, both ways
                                 ├─ response_sockets.py  prompts on a WebSocket: each is one exchange, whose bytes are
                                 │                   messages (socket_exchanges.py)
                                 ▼
                               exchange.py    one request of the agent and the model's answer to it:
                                 │  prompting.py     in a worker thread: which run, hidden turns put back
                                 │                   (hidden.py), the sidecar's tools added, trimmed
                                 │  upstream.py      forwards it, and reads what the provider refused
                                 │  answers/         which parts of the answer go to the agent; calls of the
                                 │                   sidecar's tools are answered here, and the model asked again
                                 ▼
                               the agent      the answer, or its events while they arrive
"""
