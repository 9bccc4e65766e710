"""Clicks through the console in a headless Chromium, by the WebDriver protocol of chromedriver.

Usage: console_clicks.py DRIVER_PORT URL USER KEY PICTURE
Signs in, waits for figures, makes a change by preview and button, goes to a narrow screen, signs out. Writes a picture.
"""
import base64
import json
import sys
import time
import urllib.request

port, url, user, key, picture = sys.argv[1:6]
LIMIT = 30


def call(method, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    r = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(r, timeout=60) as f:
        return json.load(f)["value"]


arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1500"]
options = {"args": arguments}
wanted = {"alwaysMatch": {"acceptInsecureCerts": True, "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
session = "/session/" + call("POST", "/session", {"capabilities": wanted})["sessionId"]


def run(script, *args):
    return call("POST", session + "/execute/sync", {"script": script, "args": list(args)})


def wait(what, script):
    end = time.time() + LIMIT
    while not run("return Boolean(" + script + ")"):
        if time.time() > end:
            print(run("return document.body.innerText"), file=sys.stderr)
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.2)


def find(css):
    found = call("POST", session + "/element", {"using": "css selector", "value": css})
    return session + "/element/" + next(iter(found.values()))


def click(css):
    call("POST", find(css) + "/click", {})


def write(css, text):
    call("POST", find(css) + "/clear", {})
    call("POST", find(css) + "/value", {"text": text})


def text(css):
    return call("GET", find(css) + "/text")


try:
    call("POST", session + "/url", {"url": url})
    wait("the form", "!document.getElementById('sign').hidden")
    # A wrong key is refused.
    write("input[name=user]", user)
    write("input[name=key]", "AQBJnMNnAAAAABAAq83vASNFZ4mrze8BI0VniQ==")
    click("#sign button")
    wait("a refusal", "document.getElementById('refused').textContent")
    write("input[name=key]", key)
    click("#sign button")
    wait("the overview", "document.querySelectorAll('#tiles .tile').length > 4")
    wait("the charts", "document.querySelectorAll('#charts svg path').length > 4")
    assert text("#word").startswith("HEALTH_"), text("#word")
    assert "osd.0" in text("#tree") and "up" in text("#tree"), text("#tree")
    wait("clean PGs", "document.getElementById('pgs').innerText.includes('active+clean')")

    # Choose, fill, preview by Enter, and cancel by Escape.
    run("const w = document.getElementById('which'); w.value = 'pool-create'; w.dispatchEvent(new Event('change'))")
    write("#fields [name=pool]", "clicked")
    write("#fields [name=pg_num]", "8")
    call("POST", find("#fields [name=pg_num]") + "/value", {"text": "\ue007"})
    wait("the preview", "!document.getElementById('preview').hidden")
    assert text("#command") == "ceph osd pool create clicked 8", text("#command")
    assert "8 new PGs" in text("#effect"), text("#effect")
    call("POST", session + "/actions", {"actions": [{"type": "key", "id": "k", "actions": [
        {"type": "keyDown", "value": "\ue00c"}, {"type": "keyUp", "value": "\ue00c"}]}]})
    wait("the end of the preview", "document.getElementById('preview').hidden")

    # And the change itself.
    click("#look")
    wait("the preview", "!document.getElementById('preview').hidden")
    click("#apply")
    wait("the result", "document.getElementById('result').textContent.startsWith('Done')")
    wait("the pool", "document.getElementById('poollist').innerText.includes('clicked')")
    time.sleep(float(sys.argv[6]) if len(sys.argv) > 6 else 0)
    run("window.scrollTo(0, 0); document.activeElement.blur()")
    with open(picture, "wb") as f:
        f.write(base64.b64decode(call("GET", session + "/screenshot")))

    # A reload keeps the session; a narrow screen needs no sideways scrolling of the page.
    call("POST", session + "/refresh", {})
    wait("the overview again", "document.querySelectorAll('#tiles .tile').length > 4")
    call("POST", session + "/window/rect", {"width": 500, "height": 900})
    wait("the width", "document.documentElement.scrollWidth <= window.innerWidth + 1")
    click("#out")
    wait("the form", "!document.getElementById('sign').hidden")
    assert run("return fetch('/api/overview').then(r => r.status)") == 401
    # The policy forbids scripts in the document, and nothing on the page wants them.
    log = call("POST", session + "/se/log", {"type": "browser"})
    bad = [e["message"] for e in log if "Content Security Policy" in e["message"] or "Uncaught" in e["message"]]
    assert not bad, bad
    print("all clicks had their effect")
finally:
    call("DELETE", session)
