"""The dashboards and rules, written from the catalogue of metrics.

A panel or an alert names a metric by the catalogue's own row, so that none can show what the sidecar does not emit:

- `names`, `promql`: the catalogue in Prometheus's words, and queries over it that are checked as they are written;
- `panels`, `render`: a dashboard as data, and the same as Grafana's JSON;
- `overview`, `trimming_and_cache`, `recall`, `health`, `fleet`: the dashboards;
- `recorded`, `alerts`, `rules`: the rules, and their files.
"""
