"""Runs rendered manifests as processes, as a kubelet would: one mount namespace for each container, with its volumes,
account, capabilities and read-only root; addresses for pods and Services; readiness; restarts. Beside it, what the API
server does with a Secret. No image: the root of a container is this machine's, with the program in its place.

Runs as root in a network namespace of its own (unshare -n -m). Pods have addresses on its loopback device.
"""
import base64
import http.server
import json
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import yaml

NAMESPACE = 'store'
API = '10.96.0.1'
# /var/run is a link to /run.
ACCOUNT = '/run/secrets/kubernetes.io/serviceaccount'


def run(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout


def wait(seconds, what, ready):
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.3)


class Api:
    """The part of the API server that makes Secrets, for the accounts that a Role allows it."""

    def __init__(self, work, manifests, secrets):
        self.tokens, self.secrets = {}, secrets
        for m in manifests:
            if m['kind'] == 'ServiceAccount':
                self.tokens[m['metadata']['name']] = os.urandom(12).hex()
        self.rules = {}
        roles = {m['metadata']['name']: m['rules'] for m in manifests if m['kind'] == 'Role'}
        for m in manifests:
            if m['kind'] == 'RoleBinding':
                for s in m['subjects']:
                    assert s['namespace'] == NAMESPACE
                    self.rules[s['name']] = roles[m['roleRef']['name']]
        self.ca = f'{work}/api.crt'
        key = f'{work}/api.key'
        run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-keyout', key, '-out', self.ca,
            '-subj', '/CN=kubernetes', '-addext', 'subjectAltName=DNS:kubernetes.default.svc')
        server = http.server.ThreadingHTTPServer((API, 443), self.handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def answer(self, path, authorization, body):
        who = next((n for n, t in self.tokens.items() if authorization == f'Bearer {t}'), None)
        if who is None:
            return 401, 'Unauthorized'
        if path != f'/api/v1/namespaces/{NAMESPACE}/secrets':
            return 404, 'NotFound'
        if not any('secrets' in r['resources'] and 'create' in r['verbs'] for r in self.rules.get(who, [])):
            return 403, 'Forbidden'
        secret = json.loads(body)
        name = secret['metadata']['name']
        assert secret['kind'] == 'Secret' and secret['apiVersion'] == 'v1', secret
        if name in self.secrets:
            return 409, 'AlreadyExists'
        self.secrets[name] = {k: base64.b64decode(v, validate=True) for k, v in secret['data'].items()}
        return 201, 'Created'

    def handler(self):
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length']))
                status, reason = api.answer(self.path, self.headers['Authorization'], body)
                text = json.dumps({'kind': 'Status', 'code': status, 'reason': reason}).encode()
                self.send_response(status)
                self.send_header('Content-Length', str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        return Handler


class Pod:
    """A pod: its name, labels, address, volumes, and the processes of its containers."""

    def __init__(self, kubelet, name, template, claims):
        self.kubelet, self.name, self.spec = kubelet, name, template['spec']
        self.labels = {**template['metadata']['labels'], 'statefulset.kubernetes.io/pod-name': name}
        self.ip = kubelet.address('10.244.0')
        self.dir = f'{kubelet.scratch}/{name}.{self.ip}'
        self.node = f'node-{name.rsplit("-", 1)[-1]}'
        self.claims, self.running, self.stopping = claims, {}, False
        self.security = self.spec.get('securityContext', {})

    def volume(self, name):
        """The directory of a volume."""
        if name in self.claims:
            return self.kubelet.claim(self.claims[name], self.name)
        v = next(v for v in self.spec['volumes'] if v['name'] == name)
        path = f'{self.dir}/volumes/{name}'
        if os.path.isdir(path):
            return path
        os.makedirs(path)
        files, mode = {}, 0o644
        if 'configMap' in v:
            files = {k: t.encode() for k, t in self.kubelet.config[v['configMap']['name']].items()}
        elif 'secret' in v:
            data, mode = self.kubelet.secrets[v['secret']['secretName']], v['secret']['defaultMode']
            files = {i['path']: data[i['key']] for i in v['secret']['items']}
        else:
            assert 'emptyDir' in v, v
            os.chmod(path, 0o777)
        for file, text in files.items():
            with open(f'{path}/{file}', 'wb') as f:
                f.write(text)
            os.chmod(f'{path}/{file}', mode)
            os.chown(f'{path}/{file}', 0, self.security.get('fsGroup', 0))
        return path

    def environment(self, container):
        env = {'PATH': '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOSTNAME': self.name, 'HOME': '/'}
        fields = {'status.podIP': self.ip, 'spec.nodeName': self.node, 'metadata.name': self.name,
                  'metadata.namespace': NAMESPACE}
        for e in container.get('env', []):
            env[e['name']] = e['value'] if 'value' in e else fields[e['valueFrom']['fieldRef']['fieldPath']]
        return env

    def script(self, container):
        """The shell script that makes the container's root and becomes its process."""
        d = f'{self.dir}/{container["name"]}'
        for sub in ('upper', 'work', 'root'):
            os.makedirs(f'{d}/{sub}', exist_ok=True)
        root, out = f'{d}/root', ['set -e', 'umask 022']
        out.append(f'mount -t overlay overlay -o lowerdir=/,upperdir={d}/upper,workdir={d}/work {root}')
        out.append(f'mount -t proc proc {root}/proc; mount --rbind /sys {root}/sys; mount -t tmpfs dev {root}/dev')
        for name, minor in (('null', 3), ('zero', 5), ('random', 8), ('urandom', 9)):
            out.append(f'mknod -m 666 {root}/dev/{name} c 1 {minor}')
        for v in container.get('volumeDevices', []):
            major, minor = self.kubelet.device(self.claims[v['name']], self.name)
            out.append(f'mknod -m 660 {root}{v["devicePath"]} b {major} {minor}')
        given = container.get('volumeMounts', [])
        mounts = [(self.volume(m['name']), m['mountPath'], m.get('readOnly')) for m in given]
        if self.spec.get('automountServiceAccountToken', True):
            mounts.append((self.kubelet.account(self.spec['serviceAccountName']), ACCOUNT, True))
        for source, at, read_only in mounts:
            out.append(f'mkdir -p {root}{at}; mount --bind {source} {root}{at}')
            out += [f'mount -o remount,bind,ro {root}{at}'] if read_only else []
        files = [(self.kubelet.hosts_file(), '/etc/hosts')]
        if container['image'].startswith('belemnite:'):
            files.append((self.kubelet.program, '/usr/bin/belemnite'))
        if '/etcd:' in container['image']:
            files.append((shutil.which('etcd'), '/usr/local/bin/etcd'))
        for source, at in files:
            out.append(f'[ -e {root}{at} ] || touch {root}{at}; mount --bind {source} {root}{at}')
        security = {**self.security, **container.get('securityContext', {})}
        if security.get('readOnlyRootFilesystem'):
            out.append(f'mount -o remount,ro {root}')
        user, group = security['runAsUser'], security['runAsGroup']
        assert not (security.get('runAsNonRoot') and user == 0)
        become = [f'--reuid={user}', f'--regid={group}', f'--groups={self.security.get("fsGroup", group)}']
        if 'ALL' in security.get('capabilities', {}).get('drop', []):
            become += ['--bounding-set=-all', '--inh-caps=-all']
        if security.get('allowPrivilegeEscalation') is False:
            become.append('--no-new-privs')
        env = [f'{k}={v}' for k, v in self.environment(container).items()]
        command = container['command'] + container.get('args', [])
        out.append(f'hostname {self.name}')
        out.append(shlex.join(['exec', 'chroot', root, 'setpriv', *become, 'env', '-i', *env, *command]))
        return '\n'.join(out)

    def spawn(self, container):
        log = open(f'{self.kubelet.work}/{self.name}.{container["name"]}.log', 'ab')
        args = ['unshare', '--mount', '--uts', 'sh', '-c', self.script(container)]
        return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def init(self):
        for c in self.spec.get('initContainers', []):
            for attempt in range(60):
                if self.stopping or self.spawn(c).wait() == 0:
                    break
                time.sleep(1)
            else:
                raise RuntimeError(f'{self.name}: {c["name"]} fails')

    def serve(self):
        """Runs the containers, again when they end, until the pod is stopped."""
        self.init()
        (container,) = self.spec['containers']
        while not self.stopping:
            self.running[container['name']] = p = self.spawn(container)
            p.wait()
            if not self.stopping:
                time.sleep(2)

    def refuses(self, words):
        """An init container ends with these words."""
        for c in self.spec['initContainers']:
            if self.spawn(c).wait() != 0:
                with open(f'{self.kubelet.work}/{self.name}.{c["name"]}.log') as f:
                    return words in f.read()
        return False

    def start(self):
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def stop(self):
        self.stopping = True
        for p in self.running.values():
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                p.wait(30)
        self.thread.join(30)

    def port(self, name):
        ports = {p['name']: p['containerPort'] for c in self.spec['containers'] for p in c.get('ports', [])}
        return ports.get(name, name)

    def is_ready(self):
        (container,) = self.spec['containers']
        p = self.running.get(container['name'])
        if p is None or p.poll() is not None:
            return False
        probe = container.get('readinessProbe', {})
        try:
            if 'tcpSocket' in probe:
                socket.create_connection((self.ip, self.port(probe['tcpSocket']['port'])), 2).close()
            elif 'httpGet' in probe:
                get, limit = probe['httpGet'], probe.get('timeoutSeconds', 1)
                urllib.request.urlopen(f'http://{self.ip}:{self.port(get["port"])}{get["path"]}', timeout=limit).close()
        except OSError:
            return False
        return True

    def kill(self):
        """Kills the container's process; `serve` starts it again."""
        (p,) = self.running.values()
        p.kill()

    def execute(self, *command, text=None):
        """Runs a command in the pod's container, as `kubectl exec` does."""
        (p,) = self.running.values()
        args = ['nsenter', f'--target={p.pid}', '--mount', '--uts', '--root', '--wd=/', *command]
        return subprocess.run(args, check=True, input=text, capture_output=True, timeout=60).stdout


class Kubelet:
    """The pods of the manifests."""

    def __init__(self, work, path, program, secrets):
        self.work, self.program, self.secrets = work, program, secrets
        self.scratch = f'{work}/pods'
        os.makedirs(self.scratch, exist_ok=True)
        # The upper layers of the roots must not lie in the lower one.
        run('mount', '-t', 'tmpfs', 'pods', self.scratch)
        run('ip', 'link', 'set', 'lo', 'up')
        self.count, self.names, self.pods, self.loops = {}, {}, [], {}
        self.services = {}
        assert self.address('10.96.0') == API
        self.names['kubernetes.default.svc'] = API
        self.apply(path)
        self.api = Api(work, self.manifests, secrets)

    def apply(self, path):
        """Takes other manifests, as an upgrade does. Services keep their addresses."""
        self.manifests = [m for m in yaml.safe_load_all(open(path)) if m]
        self.config = {m['metadata']['name']: m['data'] for m in self.manifests if m['kind'] == 'ConfigMap'}
        for m in self.manifests:
            name = m['metadata']['name']
            if m['kind'] != 'Service' or m['spec'].get('clusterIP') == 'None':
                continue
            first = name not in self.services
            self.services[name] = m['spec']
            if first:
                self.names[name] = ip = self.address('10.96.0')
                for p in m['spec']['ports']:
                    threading.Thread(target=self.forward, args=(name, ip, p), daemon=True).start()

    def address(self, net):
        self.count[net] = self.count.get(net, 0) + 1
        ip = f'{net}.{self.count[net]}'
        run('ip', 'addr', 'add', f'{ip}/32', 'dev', 'lo')
        return ip

    def find(self, kind, name):
        return next(m for m in self.manifests if m['kind'] == kind and m['metadata']['name'] == name)

    def hosts_file(self):
        path = f'{self.scratch}/hosts'
        with open(path, 'w') as f:
            f.write('127.0.0.1 localhost\n' + ''.join(f'{ip} {n}\n' for n, ip in self.names.items()))
        return path

    def account(self, name):
        path = f'{self.scratch}/account-{name}'
        os.makedirs(path, exist_ok=True)
        with open(f'{path}/token', 'w') as f:
            f.write(self.api.tokens[name])
        run('cp', self.api.ca, f'{path}/ca.crt')
        return path

    def claim(self, claim, pod):
        """The directory of a volume with a file system; it outlives the pod."""
        path = f'{self.work}/claims/{pod}-{claim["metadata"]["name"]}'
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o777)
        return path

    def device(self, claim, pod):
        """Major and minor number of a raw block volume: a loop device, which outlives the pod."""
        assert claim['spec']['volumeMode'] == 'Block'
        path = f'{self.work}/{pod}-{claim["metadata"]["name"]}.img'
        if path not in self.loops:
            with open(path, 'ab') as f:
                f.truncate(2 << 30)
            self.loops[path] = run('losetup', '-f', '--show', path).strip()
            run('blockdev', '--setrw', self.loops[path])
        number = os.stat(self.loops[path]).st_rdev
        return os.major(number), os.minor(number)

    def forward(self, name, ip, port):
        """A port of a Service: connections go to a pod that it selects."""
        listener = socket.create_server((ip, port['port']))
        while True:
            client, _ = listener.accept()
            chosen = [p for p in self.pods if self.services[name]['selector'].items() <= p.labels.items()]
            try:
                target = port.get('targetPort', port['port'])
                server = socket.create_connection((chosen[-1].ip, chosen[-1].port(target)), 2)
            except (OSError, IndexError):
                client.close()
                continue
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=copy, args=(a, b), daemon=True).start()

    def job(self, name):
        pod = Pod(self, name, self.find('Job', name)['spec']['template'], {})
        pod.init()
        (container,) = pod.spec['containers']
        if pod.spawn(container).wait() != 0:
            raise RuntimeError(f'Job {name} failed')

    def pod(self, kind, name, i):
        """One pod of a set. Below a Service without an address, its name is known from its start."""
        spec = self.find(kind, name)['spec']
        claims = {c['metadata']['name']: c for c in spec.get('volumeClaimTemplates', [])}
        pod = Pod(self, f'{name}-{i}', spec['template'], claims)
        if 'serviceName' in spec and self.find('Service', spec['serviceName'])['spec'].get('clusterIP') == 'None':
            self.names[f'{pod.name}.{spec["serviceName"]}.{NAMESPACE}.svc'] = pod.ip
            self.hosts_file()
        return pod

    def begin(self, kind, name, have=0):
        """Starts the pods of a set from a number on."""
        new = [self.pod(kind, name, i) for i in range(have, self.find(kind, name)['spec']['replicas'])]
        self.pods += new
        for p in new:
            p.start()
        return new

    def start(self, kind, name):
        new = self.begin(kind, name)
        self.await_ready(new)
        return new

    def again(self, kind, pods):
        """Pods of the same names at other addresses, as after an eviction or a change of the set."""
        self.stop(pods)
        new = [self.pod(kind, *p.name.rsplit('-', 1)) for p in pods]
        self.pods += new
        for p in new:
            p.start()
        return new

    def await_ready(self, pods):
        for p in pods:
            wait(90, f'{p.name} is not ready', p.is_ready)

    def stop(self, pods=None):
        for p in reversed(self.pods if pods is None else pods):
            p.stop()
        self.pods = [p for p in self.pods if pods is not None and p not in pods]

    def lose(self, pod, claim):
        """Loses the volume of a stopped pod."""
        shutil.rmtree(f'{self.work}/claims/{pod.name}-{claim}')

    def snapshot(self, pod, claim):
        """Copies the volume of a stopped pod."""
        run('cp', '-a', f'{self.work}/claims/{pod.name}-{claim}', f'{self.work}/{pod.name}-{claim}.snapshot')

    def restore(self, pod, claim):
        self.lose(pod, claim)
        run('mv', f'{self.work}/{pod.name}-{claim}.snapshot', f'{self.work}/claims/{pod.name}-{claim}')

    def end(self):
        self.stop()
        for loop in self.loops.values():
            run('losetup', '-d', loop)


def copy(a, b):
    try:
        while data := a.recv(1 << 16):
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
