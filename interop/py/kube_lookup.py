#!/usr/bin/env python3
"""As much of an API server as Helm's `lookup` of a StatefulSet asks. Prints its port on 127.0.0.1.

usage: kube_lookup.py NAMESPACE NAME REPLICAS
"""
import http.server
import json
import sys

SETS = {'name': 'statefulsets', 'kind': 'StatefulSet', 'namespaced': True, 'verbs': ['get']}


def main():
    namespace, name, replicas = sys.argv[1:]
    answers = {
        '/apis/apps/v1': {'kind': 'APIResourceList', 'groupVersion': 'apps/v1', 'resources': [SETS]},
        f'/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}': {
            'apiVersion': 'apps/v1', 'kind': 'StatefulSet', 'metadata': {'name': name, 'namespace': namespace},
            'spec': {'replicas': int(replicas)}},
    }
    absent = {'apiVersion': 'v1', 'kind': 'Status', 'status': 'Failure', 'reason': 'NotFound', 'code': 404}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path.split('?')[0])
            text = json.dumps(found or absent).encode()
            self.send_response(200 if found else 404)
            self.send_header('Content-Type', 'application/json')
            self.send_header('Content-Length', str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


main()
