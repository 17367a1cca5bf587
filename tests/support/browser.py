"""A real browser without a window, by the WebDriver protocol of chromedriver (Debian's package chromium-driver)."""

import base64
import json
import shutil
import subprocess
import urllib.request

import servers

# Of the protocol: the key of an element's id, and of the key Enter.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ENTER = "\ue007"
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    def __init__(self):
        driver = shutil.which("chromedriver")
        if not driver:
            raise servers.Unavailable("a browser (Debian's packages chromium and chromium-driver)")
        port = servers.free_port()
        self.root = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        servers.wait_for(self._ready, 60, "chromedriver to answer")
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": OPTIONS}}}}
        self.session = f"/session/{self._ask('/session', wanted)['sessionId']}"

    def _ready(self):
        try:
            return self._ask("/status")["ready"]
        except OSError:
            return False

    def _ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self._ask(f"{self.session}/url", {"url": url})

    def resize(self, width, height):
        """Of the page itself, also below what a window can be."""
        self.devtools("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def dark(self, wanted):
        features = [{"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}]
        self.devtools("Emulation.setEmulatedMedia", {"features": features})

    def devtools(self, command, parameters):
        return self._ask(f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def run(self, script):
        return self._ask(f"{self.session}/execute/sync", {"script": script, "args": []})

    def text(self, selector="body"):
        return self.run(f"return document.querySelector({json.dumps(selector)}).innerText")

    def type(self, selector, keys):
        found = self._ask(f"{self.session}/element", {"using": "css selector", "value": selector})
        self._ask(f"{self.session}/element/{found[ELEMENT]}/value", {"text": keys})

    def log(self):
        """What the page complained of: errors of scripts, and of what it may not load."""
        return [entry["message"] for entry in self._ask(f"{self.session}/se/log", {"type": "browser"}) if entry["level"] == "SEVERE"]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._ask(f"{self.session}/screenshot")))

    def close(self):
        try:
            urllib.request.urlopen(urllib.request.Request(self.root + self.session, method="DELETE"), timeout=30).close()
        except OSError:
            pass  # it ends with the driver
        self.process.terminate()
        self.process.wait(timeout=30)
