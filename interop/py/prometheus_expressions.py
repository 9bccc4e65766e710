"""Evaluates the expressions of Grafana dashboards and alert rules at a Prometheus server: expressions without a result.

Usage: prometheus_expressions.py URL FILE… (dashboards in JSON, rules in YAML). Prints for each expression without a result
the file and the metrics that it names and that have no series, sorted. Alerts are expressions that should have none; of
these only the missing metrics are listed.
"""
import json
import re
import sys
import urllib.parse
import urllib.request

VARIABLES = {
    "__rate_interval": "1m", "interval": "1m", "__interval": "1m", "job": ".*", "osd": "osd.0", "osd_id": "osd.0",
    "mds_servers": "", "rgw_servers": ".*", "ceph_hosts": ".*", "osd_hosts": ".*", "mon_hosts": ".*", "mds_hosts": ".*",
    "rgw_hosts": ".*", "pool_name": ".*", "topk": "5", "domain": "",
}


def ask(url, path, **query):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=20) as r:
        return json.load(r)["data"]


def dashboard(value):
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        value = list(value.values())
    if isinstance(value, list):
        for v in value:
            yield from dashboard(v)


def rules(text):
    for m in re.finditer(r"^( *)(?:- )?expr: *(\|?)\s*(.*)$((?:\n\1 +.*)*)", text, re.M):
        yield (m.group(3) + m.group(4)).strip()


def filled(expr):
    expr = re.sub(r"\[\[(\w+)\]\]", lambda m: VARIABLES.get(m.group(1), ".*"), expr)
    return re.sub(r"\$\{?(\w+)\}?", lambda m: VARIABLES.get(m.group(1), ".*"), expr)


def main(url, files):
    known = set(ask(url, "label/__name__/values"))
    lacking, count, empty, broken = {}, 0, 0, []
    for name in files:
        with open(name, encoding="utf-8") as f:
            text = f.read()
        alerts = name.endswith((".yml", ".yaml"))
        for expr in rules(text) if alerts else dashboard(json.loads(text)):
            count += 1
            query = filled(expr)
            missing = sorted(set(re.findall(r"\b(?:ceph|node)_\w+", query)) - known
                             - {"ceph_daemon", "ceph_version", "ceph_hosts"})
            try:
                found = ask(url, "query", query=query)["result"]
            except OSError as e:
                broken.append((name.rsplit("/", 1)[-1], query, str(e)))
                continue
            if not found and (missing or not alerts):
                empty += 1
                key = ", ".join(missing) or "(all metrics exist) " + query
                lacking.setdefault(key, set()).add(name.rsplit("/", 1)[-1])
    print(f"{count} expressions, {empty} without a result, {len(broken)} refused")
    for key in sorted(lacking):
        print(f"{key}: {', '.join(sorted(lacking[key]))}")
    for b in broken:
        print("refused:", *b)


main(sys.argv[1], sys.argv[2:])
