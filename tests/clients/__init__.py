"""Agents in several languages against the real server; each is also the example that docs/clients.md quotes.

Every agent takes the same arguments and prints the same lines:

    COMMAND TARGET LOG [SECONDS]

TARGET is where the sidecar listens (`127.0.0.1:7717` or `unix:///path`), LOG the file that the agent's tool reads at
each call, SECONDS the deadline of each call. At each iteration it prints `iteration N: trimmed` or `iteration N:
untrimmed (why)`, before it runs the tool. Its last line is a JSON object: `iterations`, `trimmed` and `untrimmed`
(prompts), `recalled` (whether the model was given the text of the first day again) and `finished`. The model is a
script: twelve times it reads the log, then it recalls what the first label in its prompt stands for, if there is one,
and is done.
"""
