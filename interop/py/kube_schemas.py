#!/usr/bin/env python3
"""JSON schemas for kubeconform from Kubernetes' OpenAPI document, one file for each kind in manifests. Unknown fields
are errors.

usage: kube_schemas.py SWAGGER MANIFESTS DIR
"""
import json
import sys

import yaml


def main():
    swagger, manifests, out = sys.argv[1:]
    definitions = json.load(open(swagger))['definitions']
    for d in definitions.values():
        if 'properties' in d:
            d.setdefault('additionalProperties', False)
        if d.get('format') == 'int-or-string':
            d['type'] = ['string', 'integer']
    definitions['io.k8s.apimachinery.pkg.api.resource.Quantity']['type'] = ['string', 'number']
    kinds = {}
    for name, d in definitions.items():
        for k in d.get('x-kubernetes-group-version-kind', []):
            kinds['/'.join(x for x in (k['group'], k['version'], k['kind']) if x)] = name
    for m in yaml.safe_load_all(open(manifests)):
        name = kinds[f'{m["apiVersion"]}/{m["kind"]}']
        with open(f'{out}/{m["kind"].lower()}.json', 'w') as f:
            json.dump({'$ref': f'#/definitions/{name}', 'definitions': definitions}, f)


main()
