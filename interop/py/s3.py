"""An S3 client for the tests: signature version 4 over http.client, without further packages.

usage: s3.py ENDPOINT_HOST:PORT ACCESS SECRET COMMAND [ARGUMENTS...]
commands: all [DAY_SECONDS]          every part of the session below; with DAY_SECONDS a lifecycle rule of one day, too
          put BUCKET FIRST COUNT     objects of a name and content that follow from their number; stops at the first failure
          check BUCKET COUNT         lists the bucket and reads objects: prints how many of them there are
          load BUCKET SECONDS SEED [KIND [FILE]]
                                     puts, deletes (not with KIND `keep`) and multipart uploads (not with `small`),
                                     failures allowed, until the time is over or the file exists: prints what must be
                                     there as JSON; the bucket has none of the names 0 to 399 before
          fill BUCKET FIRST COUNT    as `put`, and repeats what fails
          filled BUCKET FIRST COUNT  reads what `fill` wrote, all of it in the listing, and one in 17 of the objects
          uploads BUCKET COUNT [again]
                                     makes a bucket with objects by multipart upload, with `again` of a part that is sent
                                     twice; overwrites and deletes one
          verify BUCKET FILE         compares the bucket with what `load` printed
          list BUCKET                its names
          versioned BUCKET           makes a bucket with versioning
          versions BUCKET            its versions: key, version, marker, current, size, ETag
          digest BUCKET              its versions: key, version, marker, current, SHA-256 of the contents
"""

import datetime
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import sys
import time
import urllib.parse
import xml.etree.ElementTree as ET

# Bytes of a part: the smallest size that gateways accept.
PART = int(os.environ.get("S3_PART", 5 << 20))
# Largest object in bytes.
MOST = int(os.environ.get("S3_MOST", 20000))
NS = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class Failed(Exception):
    def __init__(self, status, body):
        self.status = status
        m = re.search(rb"<Code>(.*?)</Code>", body)
        self.code = m.group(1).decode() if m else ""
        super().__init__(f"{status} {self.code}")


class S3:
    def __init__(self, endpoint, access, secret, timeout=60):
        self.endpoint, self.access, self.secret, self.timeout = endpoint, access, secret, timeout
        self.conn = None

    def call(self, method, path, query=None, body=b"", headers=None):
        """Sends a signed request; returns (headers, body) of a status below 300."""
        query = query or {}
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        day = now[:8]
        payload = hashlib.sha256(body).hexdigest()
        h = {"host": self.endpoint, "x-amz-date": now, "x-amz-content-sha256": payload}
        h.update({k.lower(): v for k, v in (headers or {}).items()})
        quoted = urllib.parse.quote(path)
        q = "&".join(f"{urllib.parse.quote(k, safe='')}={urllib.parse.quote(str(v), safe='')}" for k, v in sorted(query.items()))
        names = ";".join(sorted(h))
        canonical = "\n".join([method, quoted, q, *(f"{k}:{h[k]}" for k in sorted(h)), "", names, payload])
        scope = f"{day}/us-east-1/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + self.secret).encode()
        for part in (day, "us-east-1", "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        sign = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        h["authorization"] = f"AWS4-HMAC-SHA256 Credential={self.access}/{scope}, SignedHeaders={names}, Signature={sign}"
        for last in (False, True):
            if self.conn is None:
                self.conn = http.client.HTTPConnection(self.endpoint, timeout=self.timeout)
            try:
                self.conn.request(method, quoted + ("?" + q if q else ""), body, h)
                r = self.conn.getresponse()
                data = r.read()
                break
            except (OSError, http.client.HTTPException):
                self.conn = None
                if last:
                    raise
        if r.status >= 300:
            raise Failed(r.status, data)
        return {k.lower(): v for k, v in r.getheaders()}, data

    def put(self, bucket, key, data=b"", **headers):
        return self.call("PUT", f"/{bucket}/{key}", None, data, headers)[0]

    def get(self, bucket, key, **query):
        return self.call("GET", f"/{bucket}/{key}", query)[1]

    def delete(self, bucket, key, **query):
        return self.call("DELETE", f"/{bucket}/{key}", query)[0]

    def page(self, bucket, **query):
        return ET.fromstring(self.call("GET", f"/{bucket}", query)[1])

    def list(self, bucket, page=1000, **query):
        """All keys and common prefixes, in the order of arrival."""
        found, marker = [], ""
        while True:
            x = self.page(bucket, **{"max-keys": page, "marker": marker, **query})
            keys = [k.text for k in x.iter(NS + "Key")]
            prefixes = [p.find(NS + "Prefix").text for p in x.iter(NS + "CommonPrefixes")]
            found += sorted(keys + prefixes)
            if x.find(NS + "IsTruncated").text != "true":
                return found
            next_marker = x.find(NS + "NextMarker")
            marker = next_marker.text if next_marker is not None else found[-1]

    def versions(self, bucket, page=1000):
        """(key, version, is a delete marker, is current) in the order of arrival."""
        found, marker = [], {}
        while True:
            x = self.page(bucket, **{"versions": "", "max-keys": page, **marker})
            for e in x:
                if e.tag in (NS + "Version", NS + "DeleteMarker"):
                    t = lambda n: e.find(NS + n).text
                    found.append((t("Key"), t("VersionId"), e.tag == NS + "DeleteMarker", t("IsLatest") == "true"))
            if x.find(NS + "IsTruncated").text != "true":
                return found
            marker = {"key-marker": x.find(NS + "NextKeyMarker").text, "version-id-marker": x.find(NS + "NextVersionIdMarker").text}

    def upload(self, bucket, key, parts, again=()):
        """Does a multipart upload; parts with numbers in `again` are sent twice."""
        x = ET.fromstring(self.call("POST", f"/{bucket}/{key}", {"uploads": ""})[1])
        upload = x.find(NS + "UploadId").text
        tags = []
        for n, data in enumerate(parts, 1):
            for _ in range(2 if n in again else 1):
                h, _ = self.call("PUT", f"/{bucket}/{key}", {"partNumber": n, "uploadId": upload}, data)
            tags.append(h["etag"])
        body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{t}</ETag></Part>" for n, t in enumerate(tags, 1))
        self.call("POST", f"/{bucket}/{key}", {"uploadId": upload}, f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode())


def content(n, size=None):
    r = random.Random(n)
    return r.randbytes(r.randrange(1, MOST) if size is None else size)


def same(what, got, want):
    if got != want:
        raise SystemExit(f"{what}: got {got!r}, expected {want!r}")


def refused(code, f, *a, **k):
    try:
        f(*a, **k)
    except Failed as e:
        same("error code", e.code or e.status, code)
    else:
        raise SystemExit(f"{code} expected")


def plain(s):
    s.call("PUT", "/plain")
    names = sorted(f"{a}/{b}/{c}" for a in "ab" for b in ("x", "y", "ä") for c in range(4)) + ["top", "tü", "z z+&"]
    for i, n in enumerate(sorted(names)):
        s.put("plain", n, content(i))
    same("listing", s.list("plain"), sorted(names, key=str.encode))
    same("listing in pages", s.list("plain", 3), sorted(names, key=str.encode))
    same("directories", s.list("plain", 2, delimiter="/"), ["a/", "b/", "top", "tü", "z z+&"])
    same("below one", s.list("plain", 1, delimiter="/", prefix="a/"), ["a/x/", "a/y/", "a/ä/"])
    same("by prefix", s.list("plain", prefix="b/y/"), [f"b/y/{i}" for i in range(4)])
    for i, n in enumerate(sorted(names)):
        same(n, s.get("plain", n), content(i))
    h, _ = s.call("HEAD", "/plain/top")
    same("size", int(h["content-length"]), len(content(sorted(names).index("top"))))
    _, part = s.call("GET", "/plain/top", None, b"", {"Range": "bytes=1-5"})
    same("range", part, content(sorted(names).index("top"))[1:6])
    s.put("plain", "copy", **{"x-amz-copy-source": "/plain/top"})
    same("copy", s.get("plain", "copy"), s.get("plain", "top"))
    s.put("plain", "top", content(77))
    same("overwritten", s.get("plain", "top"), content(77))
    refused("NoSuchKey", s.get, "plain", "absent")
    refused("BucketNotEmpty", s.call, "DELETE", "/plain")
    body = "<Delete>" + "".join(f"<Object><Key>{n.replace('&', '&amp;')}</Key></Object>" for n in names[:20]) + "</Delete>"
    import base64

    md5 = base64.b64encode(hashlib.md5(body.encode()).digest()).decode()
    s.call("POST", "/plain", {"delete": ""}, body.encode(), {"Content-MD5": md5})
    same("after delete", s.list("plain"), sorted([*names[20:], "copy"], key=str.encode))


def multipart(s):
    s.call("PUT", "/parts")
    parts = [content(1, PART), content(2, PART), content(3, 100)]
    s.upload("parts", "big", parts, again=(2,))
    same("multipart", hashlib.sha256(s.get("parts", "big")).hexdigest(), hashlib.sha256(b"".join(parts)).hexdigest())
    s.upload("parts", "big", [content(4, PART + 1000)])
    same("multipart again", s.get("parts", "big"), content(4, PART + 1000))
    s.put("parts", "copy", **{"x-amz-copy-source": "/parts/big"})
    s.delete("parts", "big")
    same("copy of a multipart object", s.get("parts", "copy"), content(4, PART + 1000))
    x = ET.fromstring(s.call("POST", "/parts/aborted", {"uploads": ""})[1])
    upload = x.find(NS + "UploadId").text
    s.call("PUT", "/parts/aborted", {"partNumber": 1, "uploadId": upload}, content(5))
    same("uploads", [k.text for k in s.page("parts", uploads="").iter(NS + "Key")], ["aborted"])
    s.call("DELETE", "/parts/aborted", {"uploadId": upload})
    same("listing", s.list("parts"), ["copy"])


def set_versioning(s, bucket, state):
    s.call("PUT", f"/{bucket}", {"versioning": ""}, f"<VersioningConfiguration><Status>{state}</Status></VersioningConfiguration>".encode())


def versioning(s):
    b = "versions"
    s.call("PUT", f"/{b}")
    for k in ("old", "gone"):
        s.put(b, k, content(1))
    set_versioning(s, b, "Enabled")
    made = {k: [s.put(b, k, content(i)).get("x-amz-version-id") for i in range(10, 14)] for k in ("old", "new")}
    for k, ids in made.items():
        for i, v in enumerate(ids):
            same(f"{k} {v}", s.get(b, k, versionId=v), content(10 + i))
        same("current", s.get(b, k), content(13))
    same("null version", s.get(b, "old", versionId="null"), content(1))
    s.delete(b, "gone")
    refused("NoSuchKey", s.get, b, "gone")
    same("listing", s.list(b), ["new", "old"])
    order = [(k, v) for k in ("new", "old") for v in reversed(made[k])] + [("old", "null")]
    for page in (1000, 1, 3):
        found = s.versions(b, page)
        same("versions", [(k, v) for k, v, _, _ in found if k != "gone"], order)
        same("of what is deleted", [(m, c) for k, _, m, c in found if k == "gone"], [(True, True), (False, False)])
    # The newest version is removed: the one before it becomes current; finally the null version.
    for i in reversed(range(4)):
        s.delete(b, "old", versionId=made["old"][i])
        same("current", s.get(b, "old"), content(9 + i) if i else content(1))
    # Removal of a version in the middle.
    s.delete(b, "new", versionId=made["new"][1])
    same("current", s.get(b, "new"), content(13))
    set_versioning(s, b, "Suspended")
    s.put(b, "new", content(20))
    s.put(b, "new", content(21))
    same("null version", s.get(b, "new", versionId="null"), content(21))
    s.delete(b, "new")
    refused("NoSuchKey", s.get, b, "new")
    found = [(v, m) for k, v, m, _ in s.versions(b) if k == "new"]
    same("null delete marker", found, [("null", True)] + [(made["new"][i], False) for i in (3, 2, 0)])
    s.put(b, "new", content(22))
    same("data in place of the marker", s.get(b, "new"), content(22))
    s.delete(b, "old")
    for k, v, _, _ in s.versions(b):
        s.delete(b, k, versionId=v)
    same("nothing left", s.versions(b), [])
    s.call("DELETE", f"/{b}")


def lifecycle(s, day):
    b = "expire"
    s.call("PUT", f"/{b}")
    for i in range(5):
        s.put(b, f"log/{i}", content(i))
        s.put(b, f"keep/{i}", content(i))
    rule = "<Rule><ID>r</ID><Filter><Prefix>log/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>"
    body = f"<LifecycleConfiguration>{rule}</LifecycleConfiguration>".encode()
    import base64

    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    s.call("PUT", f"/{b}", {"lifecycle": ""}, body, {"Content-MD5": md5})
    end = time.monotonic() + 20 * day + 60
    while s.list(b) != [f"keep/{i}" for i in range(5)]:
        if time.monotonic() > end:
            raise SystemExit(f"lifecycle: {s.list(b)} are left")
        time.sleep(0.5)


def name(n):
    return f"d{n % 7}/o{n:06}"


def patiently(f, *a):
    """Repeats a call for up to two minutes while gateway and OSDs are restarted."""
    end = time.monotonic() + 120
    while True:
        try:
            return f(*a)
        except (Failed, OSError, http.client.HTTPException):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def filled(s, bucket, first, count):
    listed = set(s.list(bucket))
    for n in range(first, first + count):
        if name(n) not in listed:
            raise SystemExit(f"{name(n)} is not listed")
        if n % 17 == 0:
            same(name(n), s.get(bucket, name(n)), content(n))


def uploads(s, bucket, count, again=None):
    s.call("PUT", f"/{bucket}")
    for n in [*range(count), 0]:
        s.upload(bucket, name(n), [content(n, PART), content(n + 1, PART), content(n + 2, 1000)], again=(1,) if again else ())
    s.delete(bucket, name(count - 1))


def load(s, bucket, seconds, seed, kind=None, stop=None):
    """A model of the bucket while gateway and OSDs may die: possible contents of each key; None for absent."""
    r = random.Random(seed)
    may = {}
    end = time.monotonic() + seconds
    failed = done = 0
    while time.monotonic() < end and not (stop and os.path.exists(stop)):
        n = r.randrange(400)
        k, new = name(n), r.randrange(1 << 30)
        what = r.choice(["put", "put", "put", "delete", "parts"] if r.random() < 0.1 else ["put", "put", "delete"])
        if (kind, what) in (("keep", "delete"), ("small", "parts")):
            what = "put"
        try:
            if what == "put":
                s.put(bucket, k, content(new))
            elif what == "parts":
                s.upload(bucket, k, [content(new, PART), content(new + 1, 1000)])
                new = -new - 1
            else:
                s.delete(bucket, k)
                new = None
            may[k] = [new]
            done += 1
        except (Failed, OSError, http.client.HTTPException):
            failed += 1
            may[k] = [*may.get(k, [None]), -new - 1 if what == "parts" else None if what == "delete" else new]
            time.sleep(0.2)
    print(json.dumps({"may": may, "done": done, "failed": failed}))


def sha(s, bucket, key):
    """SHA-256 of an object's contents; `None` if it is not there."""
    try:
        return hashlib.sha256(s.get(bucket, key)).hexdigest()
    except Failed as e:
        same(key, e.code, "NoSuchKey")
        return None


def verify(s, bucket, path):
    said = json.load(open(path))
    listed = set(s.list(bucket, 100))
    for k, values in said["may"].items():
        got = sha(s, bucket, k)
        if got is None and k in listed and None in values:
            # A gateway that was killed amid the first write of a name with versions leaves it to the next reader to point
            # to the version. That reader's answer is still that of before (`RGWRados::follow_olh` of Ceph 20.2: it brings
            # the pointer up to date, and then looks at the attributes that it read earlier).
            got = sha(s, bucket, k)
        whole = lambda v: content(v) if v >= 0 else content(-v - 1, PART) + content(-v, 1000)
        fits = [v for v in values if (None if v is None else hashlib.sha256(whole(v)).hexdigest()) == got]
        if not fits:
            raise SystemExit(f"{k}: none of {values}")
        if (got is None) == (k in listed):
            raise SystemExit(f"{k}: listed {k in listed}, read {got is not None}")
    print(f"{len(listed)} objects as they should be; {said['done']} changes, {said['failed']} failed")


def described(s, bucket):
    """A line for each version of a bucket, as its listing has them."""
    marker = {}
    while True:
        x = s.page(bucket, **{"versions": "", "max-keys": 1000, **marker})
        for e in x:
            if e.tag in (NS + "Version", NS + "DeleteMarker"):
                t = lambda n: "" if e.find(NS + n) is None else e.find(NS + n).text
                marked = "marker" if e.tag == NS + "DeleteMarker" else "object"
                yield "\t".join([t("Key"), t("VersionId"), marked, t("IsLatest"), t("Size"), t("ETag")])
        if x.find(NS + "IsTruncated").text != "true":
            return
        marker = {"key-marker": x.find(NS + "NextKeyMarker").text, "version-id-marker": x.find(NS + "NextVersionIdMarker").text}


def digest(s, bucket):
    for k, v, marked, current in s.versions(bucket):
        sha = "" if marked else hashlib.sha256(s.get(bucket, k, versionId=v)).hexdigest()
        print(k, v, marked, current, sha, sep="\t")


def main():
    endpoint, access, secret, command, *args = sys.argv[1:]
    s = S3(endpoint, access, secret)
    if command == "all":
        for part in (plain, multipart, versioning):
            part(s)
        if args:
            lifecycle(s, int(args[0]))
    elif command == "put":
        try:
            s.call("PUT", f"/{args[0]}")
        except Failed as e:
            same("bucket", e.code, "BucketAlreadyOwnedByYou")
        for n in range(int(args[1]), int(args[1]) + int(args[2])):
            s.put(args[0], name(n), content(n))
    elif command == "check":
        found = s.list(args[0])
        same("names", found, sorted(name(n) for n in range(int(args[1]))))
        for n in range(0, int(args[1]), 17):
            same(name(n), s.get(args[0], name(n)), content(n))
        print(len(found))
    elif command == "load":
        load(s, args[0], float(args[1]), int(args[2]), *args[3:])
    elif command == "fill":
        for n in range(int(args[1]), int(args[1]) + int(args[2])):
            patiently(s.put, args[0], name(n), content(n))
    elif command == "filled":
        filled(s, args[0], int(args[1]), int(args[2]))
    elif command == "uploads":
        uploads(s, args[0], int(args[1]), *args[2:])
    elif command == "verify":
        verify(s, args[0], args[1])
    elif command == "list":
        print(*s.list(args[0]), sep="\n")
    elif command == "versioned":
        s.call("PUT", f"/{args[0]}")
        set_versioning(s, args[0], "Enabled")
    elif command == "versions":
        print(*described(s, args[0]), sep="\n")
    elif command == "digest":
        digest(s, args[0])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
